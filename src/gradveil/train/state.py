"""Where a federation stands between two rounds, all that is needed to go on; and the result of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradveil.dp.budget import Budget
from gradveil.experiment.record import Record

Table = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class State:
    """Weights, running statistics and the server's velocity; in gossip of every node, with a node axis in front."""

    round: int
    params: Table
    running: Table  # empty unless they are shared
    velocity: Table  # empty without momentum
    residuals: dict[str, Table] = field(default_factory=dict)  # by client, of error feedback

    def tensors(self) -> Table:
        """Flat, as a file holds them."""
        flat = {f"{kind}/{name}": x for kind in KINDS for name, x in getattr(self, kind).items()}
        return flat | {f"residual/{who}/{name}": x for who, owed in self.residuals.items() for name, x in owed.items()}

    @classmethod
    def of(cls, round: int, flat: Table) -> State:
        """The inverse of `tensors`."""
        tables: dict[str, Table] = {kind: {} for kind in KINDS}
        residuals: dict[str, Table] = {}
        for key, x in flat.items():
            kind, _, name = key.partition("/")
            if kind == "residual":
                who, _, name = name.partition("/")
                residuals.setdefault(who, {})[name] = x
            else:
                tables[kind][name] = x
        return cls(round=round, residuals=residuals, **tables)

    def in_order_of(self, like: State) -> State:
        """With the tensors in the order of another: a defense draws for one after the other, and a file sorts them."""
        places = {name: place for place, name in enumerate([*like.params, *like.running])}
        flat = self.tensors()
        ordered = sorted(flat, key=lambda key: places.get(key.rpartition("/")[2], len(places)))
        return State.of(self.round, {key: flat[key] for key in ordered})

    def to(self, device: str) -> State:
        return State.of(self.round, {name: x.to(device) for name, x in self.tensors().items()})


KINDS = ("params", "running", "velocity")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one round."""

    round: int
    loss: float  # NaN: void
    dropped: tuple[str, ...] = ()
    void: bool = False


def play_one_by_one(
    play: Callable[[State], tuple[State, Outcome]], state: State, rounds: int
) -> tuple[State, list[Outcome]]:
    """`rounds` rounds, each from where the last one ended."""
    outcomes: list[Outcome] = []
    for _ in range(rounds):
        state, outcome = play(state)
        outcomes.append(outcome)
    return state, outcomes


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
