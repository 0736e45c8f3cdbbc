"""One training of a study: a defense, a seed, and the models that will be attacked."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors.torch import load_file
from torch import Tensor, nn

from gradveil.audit.trial import describe
from gradveil.core.defense import Defense
from gradveil.dp.budget import Budget, budget_of
from gradveil.experiment.record import Record
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.settings import StudySettings
from gradveil.tradeoff.split import StudySplit
from gradveil.train.federated import train_federation
from gradveil.train.partition import partition
from gradveil.train.privacy import exposures
from gradveil.train.state import RoundResult

CURVE = 10  # points of the curve of accuracies
KEY = "training"


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained."""

    candidate: Candidate
    number: int  # of the seed

    @property
    def key(self) -> str:
        return f"{KEY}/{self.candidate.label}/{self.number}"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What came of it. `weights` are those of every attacked round."""

    scores: Mapping[str, float]
    weights: Mapping[int, Mapping[str, Tensor]]
    seconds: float
    reason: str = ""  # why it failed
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """All that a training needs, wherever it runs. `models` are the untrained ones, one for each seed."""

    study: StudySettings
    split: StudySplit
    models: tuple[nn.Module, ...]
    device: str = "cpu"
    precision: Literal["float32", "tf32"] = "float32"
    folder: Path | None = None  # where an interrupted training can be gone on with; None: on another machine

    def __call__(self, job: Training) -> TrainingResult:
        start = time.monotonic()
        try:
            scores, weights, notes = self.train(job)
        except Exception as error:  # a training that breaks down is a failed point, and the others go on
            return TrainingResult(scores={}, weights={}, seconds=time.monotonic() - start, reason=describe(error))
        bad = [name for name, value in scores.items() if not math.isfinite(value)]
        reason = f"not finite: {', '.join(bad)}" if bad else ""
        seconds = time.monotonic() - start
        scores = {} if bad else scores
        return TrainingResult(scores=scores, weights=weights, seconds=seconds, reason=reason, notes=notes)

    def train(self, job: Training) -> tuple[dict[str, float], dict[int, dict[str, Tensor]], tuple[str, ...]]:
        federation, rounds, defense = self.study.federation(job.number), self.rounds(job), job.candidate.build()
        privacy = self.privacy(defense, job.number)
        with self.folder_of(job) as folder:
            done = train_federation(
                self.models[job.number],
                self.split.training,
                self.split.validation,
                federation,
                defense,
                folder=folder,
                checkpoints=[number for number in rounds if number],
                evaluate_every=max(1, federation.rounds // CURVE),
                device=self.device,
                precision=self.precision,
                public=self.split.public,
                privacy=privacy,
            )
            weights = {number: load_file(path) for number, path in done.checkpoints.items() if number in rounds}
        return scores_of(done.curve), weights, (*notes_of(done.curve), *([str(privacy)] if privacy else []))

    def privacy(self, defense: Defense, number: int) -> Budget | None:
        federation = self.study.federation(number)
        sizes = [len(share) for share in partition(self.split.training.labels, federation)]
        return budget_of(defense, self.models[number], exposures(sizes, federation))

    def rounds(self, job: Training) -> tuple[int, ...]:
        """Those whose models are attacked."""
        return self.study.attacked_rounds() if job.number < self.study.attacked_seeds else ()

    @contextmanager
    def folder_of(self, job: Training) -> Iterator[Path]:
        """A folder that is gone when the training has ended well."""
        if self.folder is None:
            with tempfile.TemporaryDirectory(prefix="gradveil-") as place:
                yield Path(place)
            return
        folder = self.folder / f"{job.candidate.label}-{job.number}"
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def scores_of(curve: tuple[RoundResult, ...]) -> dict[str, float]:
    """The accuracy at the end, and on the way there. A training whose last round is void has none."""
    last = curve[-1]
    found = {f"accuracy@{one.round}": one.accuracy for one in curve if one.accuracy is not None}
    accuracy = math.nan if last.accuracy is None or not math.isfinite(last.loss) else last.accuracy
    return {"accuracy": accuracy, **found}


def notes_of(curve: tuple[RoundResult, ...]) -> tuple[str, ...]:
    dropped = sum(one.dropped for one in curve)
    return (f"{dropped} updates of clients were not finite and left out",) if dropped else ()


def record_of(job: Training, result: TrainingResult, seed: int) -> Record:
    return Record(
        key=job.key,
        status="failed" if result.reason else "ok",
        scenario=KEY,
        defense=job.candidate.label,
        attack=KEY,
        attacker="unaware",
        client=f"seed-{job.number}",
        example=job.number,
        seed=seed,
        seconds=result.seconds,
        backend="",
        scores=dict(result.scores),
        notes=result.notes,
        reason=result.reason,
    )
