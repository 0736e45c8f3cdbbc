"""Where a federation stands between two rounds. Nothing else is needed to go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

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
