"""Holds the line-ups of an audit that are not in the journal yet: one record for each private picture.

The clients play the rounds that the attacks see, for a server that plants nothing. Of captured clients it is what they
sent. `ranks` of a record holds lists, of which those of ranks begin with the private picture itself, then come the
pictures that stood in for it:

- `candidates`: how many there were, the true one included
- `rank`: of the true picture, 1 is named; `rank-jpeg`, `rank-resized`, `rank-brighter`: of a near copy in its place
- `rank-in-class`, `candidates-in-class`: among the candidates of its class
- `rank-of-another`, `candidates-of-another`: of the private picture by the update of another one, in its class
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from gradveil.audit.lineup_plan import LineUpCell
from gradveil.audit.trial import describe
from gradveil.core.errors import GradveilError
from gradveil.core.observation import Observation
from gradveil.core.server import observe_agreed, observe_received
from gradveil.core.types import Update
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import places_of
from gradveil.lineup.hold import LineUp, Ranks

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

BOUND, ESTIMATED, OFF, OTHER = "line-up-bound", "line-up-estimated", "line-up-off", "line-up-not-replayed"
BESIDE = "line-up-beside"
PLANTED = "of the model that all have agreed on: a server that changes it may see more"
OWN = "every candidate has its own label, since the attacker has to infer them"
ORDER = (
    "order and crops of the pictures are granted, which clients keep to themselves; of captured ones they are simulated"
)
MASKS = "dropout masks are simulated, or granted where the order is"
GRANTED = "every candidate has the private picture's label, which the attacker would have to infer"


def gallery_of(audit: Audit) -> Gallery | None:
    """The candidates, as workers get them."""
    return None if audit.gallery is None else Gallery(images=audit.gallery, labels=audit.gallery_labels)


def run_lineups(runner: Runner, cells: Sequence[LineUpCell], gallery: Gallery | None) -> None:
    """One that was interrupted is held again whole."""
    missing = [cell for cell in cells if not runner.is_done(cell.own_keys)]
    if gallery is None or not missing:
        return
    for _, records in runner.each(partial(hold_lineup, gallery=gallery), missing, fail_lineup, describe_lineup):
        runner.keep(records)
        runner.progress.done(len(records), sum(record.status == "failed" for record in records))


def describe_lineup(cell: LineUpCell) -> tuple[str, int]:
    """Its name and the number of its clients, for the progress."""
    return cell.name, len({client for client, _ in cell.places})


def hold_lineup(cell: LineUpCell, gallery: Gallery) -> list[Record]:
    """All clients of the cell at once. Whatever is raised fails this line-up and nothing else."""
    start = time.monotonic()
    try:
        found = _hold(cell, gallery)
    except GradveilError as error:
        return fail_lineup(cell, error.message, time.monotonic() - start)
    except Exception as error:  # whatever a defense or a model of the user's raises
        return fail_lineup(cell, describe(error), time.monotonic() - start)
    share = (time.monotonic() - start) / max(1, len(found))
    return [_record(cell, one.client, one.example, seconds=share, status="ok", flags=tuple(_flags(cell, one)),
                    notes=tuple(_notes(cell)), ranks=_ranks(one)) for one in found]  # fmt: skip


def fail_lineup(cell: LineUpCell, reason: str, seconds: float = 0.0) -> list[Record]:
    """Every picture, for the same reason."""
    outcome: dict[str, Any] = {"status": "failed", "reason": reason, "seconds": seconds / len(cell.places)}
    return [_record(cell, name, example, **outcome) for name, example in cell.places]


def _hold(cell: LineUpCell, gallery: Gallery) -> list[Ranks]:
    scenario = cell.scenario
    among = _choose(gallery, list(cell.rows), scenario.private.images)
    lineup = LineUp(scenario=scenario, defense=cell.defense, gallery=among, seed=cell.observed, standins=cell.standins)
    places = [places_of(scenario, client) for client in range(len(scenario.names))]
    if cell.picture is not None:
        places = [own[cell.picture : cell.picture + 1] for own in places]
    sent = list(_updates(cell))
    updates = [sent[client] for client, own in enumerate(places) for _ in own]
    return lineup.hold([one for own in places for one in own], updates, len(cell.places))


def _choose(gallery: Gallery, rows: list[int], like: Tensor) -> Gallery:
    """Some of the gallery, where the model is."""
    labels = None if gallery.labels is None else gallery.labels[rows].to(like)
    return Gallery(images=gallery.images[rows].to(like), labels=labels)


def _updates(cell: LineUpCell) -> Iterator[list[Update]]:
    """Of every client what the server received, round by round."""
    seen = _observe(cell)
    for client in range(len(seen.names)):
        yield [{name: u[client] for name, u in one.update.items()} for one in (*seen.history, seen)]


def _observe(cell: LineUpCell) -> Observation:
    if cell.scenario.received is not None:
        return observe_received(cell.scenario, cell.defense)[0]
    return observe_agreed(cell.scenario, cell.defense, cell.observed)[0]


def _ranks(one: Ranks) -> dict[str, list[int]]:
    near = {f"rank-{name}": list(ranks) for name, ranks in one.near.items()}
    another = (
        {} if one.other is None else {"rank-of-another": [one.other], "candidates-of-another": [one.other_candidates]}
    )
    return {
        "candidates": [one.candidates],
        "rank": list(one.ranks),
        **near,
        "rank-in-class": list(one.in_class),
        "candidates-in-class": [one.class_candidates],
        **another,
    }


def _flags(cell: LineUpCell, one: Ranks) -> Iterator[str]:
    raised = {
        BOUND: one.kind == "bound",
        ESTIMATED: one.kind == "estimated",
        OFF: not one.fits,
        OTHER: one.replayed is False or _is_not_reproduced(cell, one.client),
        BESIDE: _leaves_beside(cell),
    }
    return (name for name, is_raised in raised.items() if is_raised)


def _leaves_beside(cell: LineUpCell) -> bool:
    """Whether the server gets more of the pictures than their update: statistics of normalization, or encodings."""
    scenario = cell.scenario
    encoded = scenario.threat.sees_encodings and cell.defense.acts_at("data")
    sent = scenario.received is not None and scenario.received.statistics is not None
    return encoded or sent or scenario.training.batchnorm == "batch-shared"


def _is_not_reproduced(cell: LineUpCell, client: str) -> bool:
    """Of a captured client: whether its pictures do not lead to what it sent."""
    received, at = cell.scenario.received, cell.scenario.names.index(client)
    return received is not None and bool(received.replayed) and received.replayed[at] == "not reproduced"


def _notes(cell: LineUpCell) -> Iterator[str]:
    threat = cell.scenario.threat
    if threat.may_plant:
        yield PLANTED
    if not threat.knows_labels:
        yield OWN if cell.labeled else GRANTED
    training = cell.scenario.training
    if training.feeds_draws:
        yield ORDER
    if training.dropout == "on":
        yield MASKS
    if cell.copies:
        yield f"left out of the gallery, since they are there already: {cell.copies} pictures"


def _record(cell: LineUpCell, client: str, example: int, **outcome: Any) -> Record:
    return Record(key=cell.key(client, example), scenario=cell.scenario.name, defense=cell.label, attack=cell.attack,
                  attacker=cell.attacker, control=cell.control, client=client, example=example, backend="",
                  seed=cell.attacked.at(client).number(), **outcome)  # fmt: skip
