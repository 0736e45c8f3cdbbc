"""One cell of an audit: observe, attack, align, score. A trial that fails is a failed record, never a score."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from torch import Tensor

from gradveil.attacks.base import Attack, Reconstruction
from gradveil.client import parameters_of
from gradveil.compute import Compute
from gradveil.defenses.base import Defense
from gradveil.metrics import Metric, align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.record import Attacker, Record
from gradveil.scenario import Scenario
from gradveil.seeds import Seed
from gradveil.server import Truth, observe

LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One attack, by one kind of attacker, on one defense; the scenario holds the clients that are still to do."""

    scenario: Scenario
    defense: str
    attack: str
    attacker: Attacker
    seed: Seed  # of the audit
    compute: Compute

    @property
    def name(self) -> str:
        return f"{self.defense} / {self.attack} / {self.attacker}"

    def key(self, client: str, example: int) -> str:
        return "/".join([self.scenario.name, self.defense, self.attack, self.attacker, client, str(example)])

    def repeats(self, other: Cell, defense: Defense, attack: Attack) -> bool:
        """Whether this adaptive attacker would run what the unaware one has just run: its surrogate is no defense."""
        if attack.reads_defense:
            return False
        same = (self.defense, self.attack, self.scenario.names) == (other.defense, other.attack, other.scenario.names)
        if not same or (other.attacker, self.attacker) != ("unaware", "adaptive"):
            return False
        surrogate = defense.surrogate(parameters_of(self.scenario.model))
        return not any(surrogate.acts_at(stage) for stage in ("model", "data", "batch", "gradient", "update"))

    @property
    def observed(self) -> Seed:
        """Neither attack nor attacker is in it: all of them look at the same updates."""
        return self.seed.at("observe", self.scenario.name, self.defense)

    @property
    def attacked(self) -> Seed:
        """The unaware and the adaptive attacker start alike, so their difference is what knowing is worth."""
        return self.seed.at("attack", self.scenario.name, self.defense, self.attack)


class Trial(NamedTuple):
    """What came out for one client: a record for each of its pictures, and the pictures unless it failed."""

    records: list[Record]
    file: str = ""
    pictures: Mapping[str, Tensor] = {}

    def told_again(self, cell: Cell) -> Trial:
        """The same outcome as a trial of another cell, which would run the very same computation."""
        note = "knowing this defense changes nothing for this attack: same run as the unaware attacker"
        file = self.file and file_of(cell, self.records[0].client)
        records = [
            replace(r, key=cell.key(r.client, r.example), attacker=cell.attacker, images=file, notes=(*r.notes, note))
            for r in self.records
        ]
        return Trial(records, file, self.pictures)


class Judge(NamedTuple):
    """How reconstructions are judged: the metrics, and the color of the best guess of one who saw nothing."""

    metrics: Sequence[Metric]
    blank: Tensor  # [channel, 1, 1]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attack that ran to its end, and how close it came. Scores are [client, example]."""

    got: Reconstruction
    truth: Truth
    shown: Tensor  # the reconstructions in the order of the private pictures
    scores: Mapping[str, Tensor]
    over_blank: Tensor  # dB


def run_cell(cell: Cell, defense: Defense, attack: Attack, judge: Judge) -> list[Trial]:
    """All clients of the cell at once. Whatever is raised fails this cell and nothing else."""
    start = time.monotonic()
    clients, examples = cell.scenario.private.images.shape[:2]
    try:
        attempt = _attempt(cell, defense, attack, judge)
    except Exception as error:
        share = (time.monotonic() - start) / (clients * examples)
        return [_failed(cell, client, told(error), share) for client in range(clients)]
    share = (time.monotonic() - start) / (clients * examples)
    return [_trial(cell, client, attempt, share) for client in range(clients)]


def told(error: Exception) -> str:
    """Class and message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST_REASON]


def file_of(cell: Cell, client: str) -> str:
    """A readable file name for one client of the cell; the hash keeps it unique."""
    key = cell.key(client, 0).rpartition("/")[0]
    return (
        f"{re.sub('[^A-Za-z0-9.+-]+', '_', key)[:120]}-{blake2b(key.encode(), digest_size=4).hexdigest()}.safetensors"
    )


def _attempt(cell: Cell, defense: Defense, attack: Attack, judge: Judge) -> Attempt:
    seen, truth = observe(cell.scenario, defense, attack, cell.observed)
    got = attack.reconstruct(seen, cell.attacked, cell.compute)
    images, found = got.images.detach().float().cpu().nan_to_num(0, 0, 0).clamp(0, 1), got.found.cpu()
    private, fed = truth.private.images.float().cpu(), truth.fed.images.float().cpu()
    shown = align(images, private, found).images
    scores = {m.name: m.score(shown, private) for m in judge.metrics}
    if fed.shape == private.shape:  # a defense that enlarges the batch leaves no one picture "as fed"
        matched = align(images, fed, found).images
        scores |= {f"{m.name}_fed": m.score(matched, fed) for m in judge.metrics}
    blank = peak_signal_to_noise(judge.blank.expand(private.shape), private)
    over = peak_signal_to_noise(shown, private) - blank
    return Attempt(got=got, truth=truth, shown=shown, scores=scores, over_blank=over)


def _trial(cell: Cell, client: int, attempt: Attempt, share: float) -> Trial:
    """One client's records. What is not a number is a failure of the attack, not a mercy."""
    got = attempt.got
    if not math.isfinite(got.loss[client].item()):
        return _failed(cell, client, "the attacker's loss is not finite", share, "non-finite")
    if not got.images[client].isfinite().all():
        return _failed(cell, client, "the reconstruction is not finite", share, "non-finite")
    scores = {name: of_client[client].tolist() for name, of_client in attempt.scores.items()}
    if bad := [name for name, values in scores.items() if not all(map(math.isfinite, values))]:
        return _failed(cell, client, f"not a finite score: {', '.join(bad)}", share)
    file = file_of(cell, cell.scenario.names[client])
    records = [
        _record(cell, client, example, status="ok", seconds=share, backend=got.backend, notes=tuple(got.notes),
                scores={name: values[example] for name, values in scores.items()}, loss=got.loss[client].item(),
                flags=_flags(cell, client, example, attempt), images=file)
        for example in range(attempt.shown.shape[1])
    ]  # fmt: skip
    return Trial(records, file, _pictures(attempt, client))


def _pictures(attempt: Attempt, client: int) -> dict[str, Tensor]:
    truth = attempt.truth
    original, fed = truth.private.images[client], truth.fed.images[client]
    return {"original": original, "fed": fed, "reconstructed": attempt.shown[client]}


def _failed(cell: Cell, client: int, reason: str, share: float, *flags: str) -> Trial:
    outcome = {"status": "failed", "reason": reason, "seconds": share, "backend": cell.compute.backend}
    examples = cell.scenario.private.images.shape[1]
    flags = (*_standing_flags(cell, client), *flags)
    return Trial([_record(cell, client, example, flags=flags, **outcome) for example in range(examples)])


def _record(cell: Cell, client: int, example: int, **outcome: Any) -> Record:
    name = cell.scenario.names[client]
    return Record(
        key=cell.key(name, example),
        scenario=cell.scenario.name,
        defense=cell.defense,
        attack=cell.attack,
        attacker=cell.attacker,
        client=name,
        example=example,
        seed=cell.attacked.at(name).number(),
        **outcome,
    )


def _standing_flags(cell: Cell, client: int) -> tuple[str, ...]:
    """Doubts that are there before the attack begins."""
    labels = cell.scenario.private.labels[client].argmax(-1).tolist()
    raised = {
        "tf32": cell.compute.precision == "tf32",
        "labels-inferred": not cell.scenario.threat.knows_labels,
        "repeated-labels": len(set(labels)) < len(labels),
    }
    return tuple(name for name, is_raised in raised.items() if is_raised)


def _flags(cell: Cell, client: int, example: int, attempt: Attempt) -> tuple[str, ...]:
    got = attempt.got
    raised = {
        "not-better-than-blank": bool(attempt.over_blank[client, example] <= 0),
        "did-not-converge": got.converged is not None and not got.converged[client],
        "fallback-backend": any("cannot run this" in note for note in got.notes),
    }
    return (*(name for name, is_raised in raised.items() if is_raised), *_standing_flags(cell, client))
