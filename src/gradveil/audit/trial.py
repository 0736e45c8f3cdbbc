"""One cell of an audit: observe, attack, align, score. A trial that fails is a failed record, never a score."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from torch import Tensor

from gradveil.audit.controls import blind, of_another
from gradveil.audit.memory import Memory
from gradveil.audit.oracle import NOTHING, Explained, explain
from gradveil.audit.plan import Cell, clients_of
from gradveil.audit.score import Judge, Scored, pictures_of, score
from gradveil.audit.update_match import MATCH, match_updates
from gradveil.core.attack import Reconstruction
from gradveil.core.errors import GradveilError
from gradveil.core.observation import Observation, Truth
from gradveil.core.server import observe, observe_received
from gradveil.experiment.plausible import is_number
from gradveil.experiment.record import NO_TRUTH, NOT_REPLAYED, Record
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise

LONGEST_REASON = 300
SAME_RUN = "knowing this defense changes nothing for this attack: same run as the unaware attacker"


class Trial(NamedTuple):
    """What came out for one client: a record for each of its pictures, and the pictures unless it failed."""

    records: list[Record]
    file: str = ""
    pictures: Mapping[str, Tensor] = {}

    def repeat_as(self, cell: Cell) -> Trial:
        """The same outcome as a trial of another cell, which would run the very same computation."""
        file = self.file and file_of(cell, self.records[0].client)
        own = {"attacker": cell.attacker, "images": file, "seconds": 0.0}
        records = [
            replace(r, key=cell.key(r.client, r.example), notes=(*r.notes, SAME_RUN), **own) for r in self.records
        ]
        return Trial(records, file, self.pictures)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attack that ran to its end, and how close it came. Scores are [client, example]."""

    cell: Cell
    got: Reconstruction
    truth: Truth | None  # None: nobody here has the originals
    shown: Tensor  # the reconstructions in the order of the private pictures
    scored: Scored
    blank: Tensor | None  # dB of the blank picture
    over_blank: Tensor | None  # dB
    seconds: float = 0.0  # of one picture
    explained: Explained = NOTHING  # how much of the update by the truth and by the reconstruction


def run_cell(cell: Cell, judge: Judge, memory: Memory | None = None) -> list[Trial]:
    """All clients of the cell at once. Whatever is raised fails this cell and nothing else.

    memory: what the other attackers of the shard have found
    """
    memory = memory or Memory()
    start = time.monotonic()
    clients, examples = cell.scenario.private.images.shape[:2]
    try:
        attempts = list(_attempts(cell, judge, memory))
    except Exception as error:
        if clients > 1 and not isinstance(error, GradveilError):  # one client's update may spoil it for all
            return _one_by_one(cell, judge, memory, error)
        share = (time.monotonic() - start) / (clients * examples)
        return [_fail(cell, client, describe(error), share) for client in range(clients)]
    share = (time.monotonic() - start) / (clients * examples)
    attempts[0] = replace(attempts[0], seconds=share)
    return [_trial(attempt, client) for attempt in attempts for client in range(clients)]


def _one_by_one(cell: Cell, judge: Judge, memory: Memory, error: Exception) -> list[Trial]:
    """Each client alone: those that are sound get their score, the culprit its reason."""
    clients = range(len(cell.scenario.names))
    alone = [replace(cell, scenario=clients_of(cell.scenario, slice(i, i + 1))) for i in clients]
    note = f"run alone, since the batch failed: {describe(error)}"
    trials = [_add_note(trial, note) for one in alone for trial in run_cell(one, judge, memory)]
    if cell.compares:
        other = replace(cell, control="another")
        trials += [_fail(other, client, describe(error), 0.0) for client in clients]
    return trials


def _add_note(trial: Trial, note: str) -> Trial:
    return trial._replace(records=[replace(record, notes=(*record.notes, note)) for record in trial.records])


def describe(error: Exception) -> str:
    """Class and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_REASON]


def file_of(cell: Cell, client: str) -> str:
    """A readable file name for one client of the cell; the hash keeps it unique."""
    key = cell.key(client, 0).rpartition("/")[0]
    return (
        f"{re.sub('[^A-Za-z0-9.+-]+', '_', key)[:120]}-{blake2b(key.encode(), digest_size=4).hexdigest()}.safetensors"
    )


def _attempts(cell: Cell, judge: Judge, memory: Memory) -> Iterator[Attempt]:
    """The cell's own, and what comes free with it."""
    received, truth = _observe(cell)
    is_blind = cell.control in ("prior", "random")
    seen = blind(received, cell.seed.at("blind", cell.scenario.name)) if is_blind else received
    got = memory.reconstruct(cell, seen, cell.attacked, cell.compute)
    if truth is None:
        yield _match(cell, got, received)
        return
    yield replace(_judge(cell, got, truth, judge), explained=explain(cell, received, truth, got, judge))
    if cell.compares:
        yield _judge(replace(cell, control="another"), of_another(got), truth, judge)


def _observe(cell: Cell) -> tuple[Observation, Truth | None]:
    if cell.scenario.received is not None:
        return observe_received(cell.scenario, cell.defense)
    return observe(cell.scenario, cell.defense, cell.method, cell.observed)


def _match(cell: Cell, got: Reconstruction, received: Observation) -> Attempt:
    """Without the originals: all that can be said is how well the reconstruction explains the update."""
    images = pictures_of(got)
    match = match_updates(received, got).unsqueeze(-1).expand(images.shape[:2])
    return Attempt(
        cell=cell, got=got, truth=None, shown=images, blank=None, over_blank=None,
        scored=Scored(scores={MATCH.name: match}, floors={}),
    )  # fmt: skip


def _judge(cell: Cell, got: Reconstruction, truth: Truth, judge: Judge) -> Attempt:
    private = truth.private.images.float().cpu()
    shown = align(pictures_of(got), private, got.found.cpu()).images
    blank = peak_signal_to_noise(judge.blank.expand(private.shape), private)
    return Attempt(
        cell=cell, got=got, truth=truth, shown=shown, scored=score(cell, got, shown, truth, judge), blank=blank,
        over_blank=peak_signal_to_noise(shown, private) - blank,
    )  # fmt: skip


def _trial(attempt: Attempt, client: int) -> Trial:
    """One client's records. What is not a number is a failure of the attack, not a mercy."""
    cell, got, share = attempt.cell, attempt.got, attempt.seconds
    if not is_number(got.loss[client].item()):
        return _fail(cell, client, f"the attacker's loss is not finite{_since(got, client)}", share, "non-finite")
    if not got.images[client].isfinite().all():
        return _fail(cell, client, "the reconstruction is not finite", share, "non-finite")
    scored = attempt.scored
    scores = {name: of_client[client].tolist() for name, of_client in scored.scores.items()}
    if bad := [name for name, values in scores.items() if not all(map(is_number, values))]:
        return _fail(cell, client, f"not a finite score: {', '.join(bad)}", share)
    file = "" if cell.control == "another" else file_of(cell, cell.scenario.names[client])
    unknown = cell.scenario.training.unknowns
    notes = (*got.notes, *unknown, *attempt.explained.notes, *((SAME_RUN,) if cell.repeats else ()))
    records = [
        _record(cell, client, example, status="ok", seconds=share, backend=got.backend, notes=notes,
                scores={name: values[example] for name, values in scores.items()}, loss=got.loss[client].item(),
                flags=_flags(attempt, client, example), images=file, explained=attempt.explained.of(client),
                floors=scored.floors_of(client, example), fed=scored.fed_of(client, example),
                blank=None if attempt.blank is None else attempt.blank[client, example].item())
        for example in range(attempt.shown.shape[1])
    ]  # fmt: skip
    return Trial(records, file, _pictures(attempt, client) if file else {})


def _since(got: Reconstruction, client: int) -> str:
    step = math.inf if got.broke is None else got.broke[client].item()
    return f" from step {step:.0f} on" if math.isfinite(step) else ""


def _pictures(attempt: Attempt, client: int) -> dict[str, Tensor]:
    """Copies: a view would take the pictures of all clients along on its way out of a worker process."""
    truth, views = attempt.truth, {"reconstructed": attempt.shown}
    if truth is not None:
        views |= {"original": truth.private.images, "fed": truth.fed.images}
    return {name: images[client].clone() for name, images in views.items()}


def _fail(cell: Cell, client: int, reason: str, share: float, *flags: str) -> Trial:
    outcome = {"status": "failed", "reason": reason, "seconds": share, "backend": cell.compute.backend}
    examples = cell.scenario.private.images.shape[1]
    flags = (*_standing_flags(cell, client), *flags)
    return Trial([_record(cell, client, example, flags=flags, **outcome) for example in range(examples)])


def fail_cell(cell: Cell, reason: str) -> list[Trial]:
    """Every trial of the cell, for the same reason."""
    own = [_fail(cell, client, reason, 0.0) for client in range(len(cell.scenario.names))]
    return own + (fail_cell(replace(cell, control="another"), reason) if cell.compares else [])


def _record(cell: Cell, client: int, example: int, **outcome: Any) -> Record:
    name = cell.scenario.names[client]
    return Record(
        key=cell.key(name, example),
        scenario=cell.scenario.name,
        defense=cell.label,
        attack=cell.attack,
        attacker=cell.attacker,
        control=cell.control,
        client=name,
        example=example,
        seed=cell.attacked.at(name).number(),
        **outcome,
    )


def _standing_flags(cell: Cell, client: int) -> tuple[str, ...]:
    """Doubts that are there before the attack begins."""
    has_labels = cell.scenario.has_truth and cell.scenario.target.has_classes
    labels = cell.scenario.private.labels[client].argmax(-1).tolist() if has_labels else []
    replayed = cell.scenario.received.replayed if cell.scenario.received is not None else ()
    raised = {
        NO_TRUTH: not cell.scenario.has_truth,
        NOT_REPLAYED: bool(replayed) and replayed[client] == "not reproduced",
        "tf32": cell.compute.precision == "tf32",
        "labels-inferred": not cell.scenario.threat.knows_labels,
        "repeated-labels": len(set(labels)) < len(labels),
    }
    return tuple(name for name, is_raised in raised.items() if is_raised)


def _flags(attempt: Attempt, client: int, example: int) -> tuple[str, ...]:
    got, cell = attempt.got, attempt.cell
    raised = {
        "not-better-than-blank": attempt.over_blank is not None and bool(attempt.over_blank[client, example] <= 0),
        "did-not-converge": got.converged is not None and not got.converged[client],
        "fallback-backend": got.fell_back,
    }
    return (*(name for name, is_raised in raised.items() if is_raised), *attempt.explained.doubts(client),
            *_standing_flags(cell, client))  # fmt: skip
