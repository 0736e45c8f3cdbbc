"""What a run with limited time does at once: fewer clients than a shard has, so that what is done soon counts soon.

Which clients are together does not depend on what is there already, so an interrupted piece is run again whole.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, TypeVar

import torch

from gradveil.audit.ladder import count_most, rung_of, rungs_of, takes_steps
from gradveil.audit.lineup_plan import LineUpCell
from gradveil.audit.plan import Cell, Grid, clients_of
from gradveil.audit.probe import FEW, PROBE, first_of, time_search
from gradveil.audit.schedule import shards
from gradveil.audit.score import Judge
from gradveil.core.compute import Compute
from gradveil.core.threads import threads, wait_for
from gradveil.core.time_limit import OutOfTime, TimeLimit
from gradveil.experiment.record import Control

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

Group = list[Cell]
Item = TypeVar("Item")
PATIENCE = 20.0  # seconds that the longest search on the clients of one piece may take
MEASURE = 0.15  # share of the time in which a step is measured; slower is one client at a time


def measure_step(audit: Audit, compute: Compute, limit: TimeLimit, judge: Judge) -> float:
    """Seconds of one evaluation of a search on one client, at least where it is slow. 0: nothing takes steps."""
    searched = (cell for group in shards(audit, compute, 1) for cell in group if takes_steps(cell.method))
    if (cell := next(searched, None)) is None:
        return 0.0
    most = max(0.0, MEASURE * limit.remaining)
    try:
        with compute.active(), threads(1, of_torch=1 if compute.spread else torch.get_num_threads()) as submit:
            return wait_for(submit(time_search, first_of(cell), judge, PROBE), time.monotonic() + most).each
    except OutOfTime:
        return most / (6 * FEW)  # a half of it may be what comes before the first step


def clients_at_once(audit: Audit, step: float, shard: int) -> int:
    """As many as the longest search ends with in a short time, one at least."""
    most = max(count_most(attack) for attack in audit.attacks.values())
    return min(shard, max(1, int(PATIENCE / (most * step)))) if step else shard


def divide(group: Group, size: int) -> Iterator[Group]:
    """The same attackers on fewer clients at a time; on two at least where each is compared with another."""
    names = group[0].scenario.names
    least = 2 if group[0].compares else 1
    size = max(size, least)
    starts = range(0, max(1, len(names) - (least - 1)), size)
    for first, following in zip_longest(starts, starts[1:], fillvalue=len(names)):
        yield [cell.only(names[first:following]) for cell in group]


def divide_lineup(cell: LineUpCell, size: int) -> Iterator[LineUpCell]:
    """Whole where steps are quick; else picture by picture, with another client's update beside as a control."""
    if size > 1:
        yield cell
        return
    clients, examples = cell.scenario.private.images.shape[:2]
    for client in range(clients):
        both = list(dict.fromkeys([client, (client + 1) % clients]))
        for example in range(examples):
            yield replace(cell, scenario=clients_of(cell.scenario, both), picture=example)


def in_turn(parts: Iterable[Iterable[Item]]) -> list[Item]:
    """The first of each, then the second of each."""
    nothing = object()
    return [one for turn in zip_longest(*parts, fillvalue=nothing) for one in turn if one is not nothing]  # type: ignore[misc]


def evaluations(group: Group) -> int:
    """Of all clients at most; an attacker who only repeats another costs nothing."""
    running = [cell for cell in group if not (cell.repeats and cell is not group[0])]
    return len(group[0].scenario.names) * sum(count_most(cell.method) for cell in running)


def rung_shards(audit: Audit, rung: int, compute: Compute, shard: int) -> list[Group]:
    """The searches of an audit with one in so many steps; no client stays only because it is a control elsewhere."""
    part = replace(audit, attacks=rungs_of(audit.attacks, rung), controls=False, convergence=False)
    return [[replace(cell, is_control=False) for cell in group] for group in shards(part, compute, shard)]


def controls_of(audit: Audit, cell: Cell, clients: Collection[str], kind: Control) -> list[Group]:
    """The same effort on noise in the place of the clients' updates."""
    threat = replace(cell.scenario.threat, knows_defense=False)
    attacks = rungs_of(audit.attacks, rung_of(cell.attack))
    grid = Grid(defenses=audit.defenses, attacks={cell.attack: attacks[cell.attack]}, seed=cell.seed,
                compute=cell.compute, compare=False)  # fmt: skip
    return list(grid.controls(replace(cell.only(clients).scenario, threat=threat), (kind,)))


def all_pieces(groups: Iterable[Group], size: int) -> list[Group]:
    return list(chain.from_iterable(divide(group, size) for group in groups))
