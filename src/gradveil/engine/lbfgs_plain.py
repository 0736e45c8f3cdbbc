"""L-BFGS without a line search, as `torch.optim.LBFGS` runs it by default, for many independent trials at once.

The reference codes of the reconstruction attacks use it so: every step has the length `rate` and is taken, whatever
comes of it. One call brings one value. torch takes them in iterations of `updates` steps and looks at the point again
where one begins or was broken off; that shows here as a value that moves nothing. Differs: the limit is the number of
values and not of iterations, so a trial that breaks iterations off gets more of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.types import Latent
from gradveil.engine.lbfgs_history import Pairs, column, dot, empty_pairs, flat, push_pair, two_loops, unflat, where
from gradveil.engine.optimizer import State

LEAST_CURVATURE = 1e-10  # s.y above which torch remembers a pair


@dataclass(frozen=True, kw_only=True)
class PlainLbfgs:
    """`rate`, `memory`, `updates`, `gradient` and `change` are torch's lr, history_size, max_iter and tolerances.

    `signed` uses the sign of the gradient only. A trial rests for good where its gradient is zero up to `gradient` or
    its direction no longer descends. A value that is not finite ends the trial, which then counts as failed.
    """

    rate: float = 1.0
    memory: int = 100
    updates: int = 20
    gradient: float = 1e-7
    change: float = 1e-9
    signed: bool = False

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.memory < 1 or self.updates < 1:
            raise ConfigError(f"{self} is out of range, take rate > 0, memory >= 1 and updates >= 1", key="lbfgs")

    def init(self, z: Latent) -> State:
        x = flat(z)
        none = torch.zeros_like(x[:, 0])
        last = {"move": torch.zeros_like(x), "grad": torch.zeros_like(x), "value": none.clone()}
        # not called done: the engine takes that for a sign that bad values are backed out of
        flags = {"updated": none.long(), "started": none.bool(), "resting": none.bool()}
        return empty_pairs(x, self.memory)._asdict() | last | flags

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        grad, started = flat(grads).sign() if self.signed else flat(grads), state["started"]
        resting = state["resting"] | (grad.abs().amax(-1) <= self.gradient)
        going = ~resting & ~self._broken_off(value, state)
        curved = dot(state["move"], grad - state["grad"]) > LEAST_CURVATURE
        pairs = Pairs(state["s"], state["y"], state["rho"])
        pairs = push_pair(pairs, state["move"], grad - state["grad"], going & started & curved)
        direction = -two_loops(grad, pairs)
        resting = resting | (going & (dot(grad, direction) > -self.change))
        going = going & ~resting

        length = self.rate * (1 / grad.abs().sum(-1)).clamp(max=1.0).masked_fill(started, 1.0)
        move = column(length) * direction
        here = flat(z)
        last = {"move": where(going, move, state["move"]), "grad": where(going, grad, state["grad"])}
        last["value"] = where(going, value, state["value"])
        updated = torch.where(going, (state["updated"] + 1) % self.updates, 0)
        flags = {"updated": updated, "started": started | going, "resting": resting}
        return unflat(where(going, here + move, here), z), pairs._asdict() | last | flags

    def _broken_off(self, value: Tensor, state: State) -> Tensor:
        """The last update of an iteration that goes on has changed next to nothing."""
        still = state["move"].abs().amax(-1) <= self.change
        level = (value - state["value"]).abs() < self.change
        return (state["updated"] > 0) & (still | level)
