"""In which order a run with limited time does its work."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING

from gradveil.audit.ladder import RUNGS, base_of, name_rung, rung_of
from gradveil.audit.lineup_plan import LineUpCell
from gradveil.audit.pieces import Group, in_turn
from gradveil.audit.schedule import waves
from gradveil.experiment.record import Record

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

Ordered = list[tuple[Group, set[str]]]  # each with the attacks whose whole recoveries need no further attack


def order_whole(audit: Audit, pieces: Sequence[Group], records: Sequence[Record] = ()) -> Ordered:
    """The controls that say what has leaked, what is audited, and at last what says what an attack is worth."""
    names = {scenario.name for scenario in (audit.scenario, *audit.also)}
    audited = [one for one in pieces if not one[0].control and one[0].scenario.name in names]
    negative = [one for one in pieces if one[0].control and one[0].control != "doubled"]
    worth = [one for one in pieces if one[0].control == "doubled" or one[0].scenario.name not in names]
    ordered: Ordered = [(one, set()) for one in negative if one[0].scenario.name in names]
    before: set[str] = set()
    for wave in waves(audited, list(audit.attacks)) if audit.sequence else [audited]:
        ordered += [(one, set(before)) for one in most_promising(wave, records)]
        before |= {one[0].attack for one in wave if audit.sequence and not one[0].is_control}
    return [*ordered, *((one, set()) for one in worth)]


def most_promising(pieces: Iterable[Group], records: Sequence[Record]) -> list[Group]:
    """Of every cell the clients first whose updates a smaller effort explains best, and all cells in turn."""
    losses: dict[tuple[str, ...], tuple[int, float]] = {}
    for record in records:
        if not record.control and record.loss is not None and isfinite(record.loss):
            own = record.scenario, record.defense, base_of(record.attack), record.client
            deepest = losses.get(own, (inf, inf))
            losses[own] = min(deepest, (rung_of(record.attack), record.loss))  # type: ignore[assignment]
    cells: dict[tuple[str, ...], list[Group]] = {}
    for group in pieces:
        cells.setdefault(group[0].place[:3], []).append(group)

    def promise(group: Group) -> float:
        scenario, defense, label = group[0].place[:3]
        keys = ((scenario, defense, base_of(label), name) for name in group[0].scenario.names)
        return min((losses[key][1] for key in keys if key in losses), default=inf)

    return in_turn(sorted(groups, key=promise) for groups in cells.values())


def by_defense(cells: Iterable[LineUpCell]) -> list[LineUpCell]:
    """A piece of each defense, then a second one of each."""
    found: dict[tuple[str, str], list[LineUpCell]] = {}
    for cell in cells:
        found.setdefault((cell.scenario.name, cell.label), []).append(cell)
    return in_turn(found.values())


def is_passed(group: Group, done: Container[str]) -> bool:
    """Whether all of its trials are there with more steps."""
    label = group[0].attack
    rung = rung_of(label)
    deeper = [name_rung(base_of(label), one) for one in RUNGS if one < rung] + [base_of(label)]
    clients = [(cell, name, n) for cell in group for name in cell.scenario.names
               for n in range(cell.scenario.private.images.shape[1])]  # fmt: skip

    def is_there(other: str) -> bool:
        keys = ("/".join([*cell.place[:2], other, cell.place[3], name, str(n)]) for cell, name, n in clients)
        return all(key in done for key in keys)

    return any(map(is_there, deeper))
