"""The result of a training: one line a round, and the model at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gradveil.dp.budget import Budget
from gradveil.experiment.record import Record


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """One round on the curve. `loss` is of the clients' last steps, NaN where the round is void."""

    round: int
    loss: float
    accuracy: float | None  # of the shared model, or of the mean of all nodes; None: not evaluated
    seconds: float
    dropped: int = 0  # clients left out since what they sent was not finite
    names: tuple[str, ...] = ()  # of those
    void: bool = False  # nobody was left, or the mean of what was sent is not finite: the model stays as it was
    worst: float | None = None  # accuracy of the worst node, in gossip


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The model after the last round, in eval mode on the CPU, and how it got there."""

    model: nn.Module
    curve: tuple[RoundResult, ...]
    checkpoints: Mapping[int, Path]
    notes: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float | None:
        """The last that was measured."""
        return next((one.accuracy for one in reversed(self.curve) if one.accuracy is not None), None)

    def to_json(self, folder: Path, privacy: Budget | None = None) -> dict[str, Any]:
        """A summary as plain values."""
        evaluated = [one for one in self.curve if one.accuracy is not None]
        return {
            "folder": str(folder),
            "accuracy": self.accuracy,
            "worst": self.curve[-1].worst if self.curve else None,
            "rounds": len(self.curve),
            "void": sum(one.void for one in self.curve),
            "dropped": sum(one.dropped for one in self.curve),
            "checkpoints": {str(round): str(path) for round, path in self.checkpoints.items()},
            "notes": list(self.notes),
            "privacy": None if privacy is None else privacy.as_json(),
            "curve": [{"round": one.round, "accuracy": one.accuracy} for one in evaluated],
        }


VOID = "void: no client sent finite numbers, the model stays as it was"


def as_record(result: RoundResult, seed: int) -> Record:
    """A round as a line of the journal."""
    measured = {"accuracy": result.accuracy, "worst": result.worst}
    scores = {name: value for name, value in measured.items() if value is not None}
    return Record(
        key=f"round/{result.round}",
        status="failed" if result.void else "ok",
        scenario="training",
        defense="",
        attack="",
        attacker="unaware",
        client="",
        example=result.round,
        seed=seed,
        seconds=result.seconds,
        backend="local",
        scores=scores,
        loss=result.loss if math.isfinite(result.loss) else None,
        notes=result.names,
        reason=VOID if result.void else "",
    )


def from_record(record: Record) -> RoundResult:
    """The round that a line of the journal tells of."""
    return RoundResult(
        round=record.example,
        loss=math.nan if record.loss is None else record.loss,
        accuracy=record.scores.get("accuracy"),
        seconds=record.seconds,
        dropped=len(record.notes),
        names=record.notes,
        void=record.status == "failed",
        worst=record.scores.get("worst"),
    )
