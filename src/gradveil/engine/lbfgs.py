"""L-BFGS (Liu and Nocedal, 1989) for many independent trials at once.

`torch.optim.LBFGS` drives one problem by calling a closure, so it can neither be batched nor captured. Here every trial
is a small state machine: one call brings one value and one gradient, and each trial is at its own place in its own
line search.

    the point just evaluated ->  enough descent, flat enough   -> accept: new pair (s, y), new direction
                                 too little descent, or NaN    -> hi = t  \\  next t: middle of lo and hi,
                                 still falling steeply         -> lo = t  /  or 2 lo while there is no hi

Differs from torch: the line search is the weak-Wolfe bisection of Lewis and Overton (2013), which needs two numbers of
memory instead of an interpolation's branches; tolerances are relative to the size of the point and of the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.types import Latent
from gradveil.engine.lbfgs_history import (
    Pairs,
    clear_pairs,
    column,
    dot,
    flat,
    push_pair,
    rounding_of,
    two_loops,
    unflat,
    where,
)
from gradveil.engine.optimizer import State


class Point(NamedTuple):
    """A place in every trial, with what is known there: z and grad are [trial, number], value is [trial]."""

    z: Tensor
    value: Tensor
    grad: Tensor


class Search(NamedTuple):
    """Where every trial stands in its line search after the point just evaluated."""

    t: Tensor
    lo: Tensor
    hi: Tensor
    tries: Tensor
    low: Point  # the last point with enough descent: what a search that runs out of tries falls back on
    wolfe: Tensor  # the point just evaluated is good
    spent: Tensor  # no further try


@dataclass(frozen=True, kw_only=True)
class Lbfgs:
    """`rate` is the first step that each line search tries, `memory` the pairs kept, `tries` the values per search.

    A trial is done when its largest gradient entry is at most `gradient`, when an accepted move changed the point or
    the value by at most a share of `change`, when the search fails along steepest descent too, or when its
    start is not finite. A done trial stays at its last accepted point. With a box (`Space.constrain`) the tests are
    made on the move that is left of the proposed one.

    `rounding` is how far two values may differ by rounding alone: 1e-6 for 1 - cosine in float32, however small the
    value. Within it the slopes decide, which lose their digits later: approximate Wolfe, Hager and Zhang (2005).
    """

    rate: float = 1.0
    memory: int = 10
    tries: int = 25
    gradient: float = 1e-12
    change: float = 1e-12
    armijo: float = 1e-4
    curvature: float = 0.9
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if self.rate <= 0 or self.memory < 1 or self.tries < 1:
            raise ConfigError(f"{self} is out of range, take rate > 0, memory >= 1 and tries >= 1", key="lbfgs")
        if not 0 < self.armijo < self.curvature < 1 or self.rounding < 0:
            raise ConfigError(f"{self} is out of range, take 0 < armijo < curvature < 1 and rounding >= 0", key="lbfgs")

    def init(self, z: Latent) -> State:
        x = flat(z)
        zeros, none = torch.zeros_like(x), torch.zeros_like(x[:, 0])
        slots = zeros.unsqueeze(1).repeat(1, self.memory, 1)
        base = _pack("base", Point(x, none, zeros)) | _pack("low", Point(x, none, zeros))
        pairs = {"s": slots, "y": slots, "rho": slots[..., 0]}
        search = {"direction": zeros, "t": none, "lo": none, "hi": none}
        flags = {"tries": none.long(), "started": none.bool(), "done": none.bool()}
        return {name: tensor.clone() for name, tensor in (base | pairs | search | flags).items()}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        here, base = Point(flat(z), value, flat(grads)), _unpack("base", state)
        done, started = state["done"], state["started"]
        pairs = Pairs(state["s"], state["y"], state["rho"])
        finite = value.isfinite() & here.grad.isfinite().all(-1)

        search = self._judge(here, base, finite, state)
        first = ~started & finite
        fall_back = search.spent & (search.lo > 0)
        accept = (first | (started & (search.wolfe | fall_back))) & ~done
        best = _pick(first | search.wolfe, here, search.low)
        stuck = started & search.spent & ~accept & ~done
        restart = stuck & (pairs.rho[:, -1] > 0)  # once more along steepest descent, with an empty memory

        s, y = best.z - base.z, best.grad - base.grad
        pairs = clear_pairs(push_pair(pairs, s, y, accept & started & (dot(s, y) > rounding_of(s, y))), restart)
        settled = accept & (self._is_flat(best) | (started & self._unchanged(base, best)))
        done = done | (~started & ~finite) | (stuck & ~restart) | settled
        base = _pick(accept, best, base)
        search, direction = self._aim(search, base, pairs, accept | restart, state["direction"])

        # a done trial stays where the engine put it last; one that has just ended returns to its accepted point
        going = torch.where(column(done), base.z, base.z + column(search.t) * direction)
        moved = torch.where(column(state["done"]), here.z, going)
        new = {"t": search.t, "lo": search.lo, "hi": search.hi, "tries": search.tries, "direction": direction}
        flags = {"started": started | finite, "done": done}
        points = _pack("base", base) | _pack("low", search.low)
        return unflat(moved, z), points | pairs._asdict() | new | flags

    def _judge(self, here: Point, base: Point, finite: Tensor, state: State) -> Search:
        """Both Wolfe conditions on the move as made, and the bracket that follows. NaN is too little descent."""
        move = here.z - base.z
        expected = dot(base.grad, move)
        slope = dot(here.grad, move)
        lower = here.value <= base.value + self.armijo * expected
        if self.rounding:
            level = (here.value - base.value).abs() <= self.rounding
            lower = lower | (level & (slope <= (2 * self.armijo - 1) * expected))
        descends = finite & (expected < 0) & lower
        flat = slope >= self.curvature * expected
        tries = state["tries"] + 1
        # a box may turn the proposed move uphill or leave nothing of it: shorter ones are not worth a value each
        spent = (tries >= self.tries) | ~(expected < 0)
        return Search(
            t=state["t"],
            lo=torch.where(descends & ~flat, state["t"], state["lo"]),
            hi=torch.where(descends, state["hi"], state["t"]),
            tries=tries,
            low=_pick(descends & ~flat, here, _unpack("low", state)),
            wolfe=descends & flat,
            spent=spent,
        )

    def _aim(self, search: Search, base: Point, pairs: Pairs, turn: Tensor, before: Tensor) -> tuple[Search, Tensor]:
        """A new direction and bracket for the trials that turn, the next step length for the others."""
        newton = -two_loops(base.grad, pairs)
        usable = (dot(newton, base.grad) < 0) & newton.isfinite().all(-1) & (pairs.rho[:, -1] > 0)
        fresh = torch.where(column(usable), newton, -base.grad)
        length = self.rate * (1 / base.grad.abs().sum(-1)).clamp(max=1.0).masked_fill(usable, 1.0)
        inside = torch.where(search.hi.isinf(), 2 * search.lo, (search.lo + search.hi) / 2)
        aimed = search._replace(
            t=torch.where(turn, length, inside),
            lo=search.lo.masked_fill(turn, 0),
            hi=search.hi.masked_fill(turn, torch.inf),
            tries=search.tries.masked_fill(turn, 0),
        )
        return aimed, torch.where(column(turn), fresh, before)

    def _is_flat(self, point: Point) -> Tensor:
        return point.grad.abs().amax(-1) <= self.gradient

    def _unchanged(self, old: Point, new: Point) -> Tensor:
        still = (new.z - old.z).abs().amax(-1) <= self.change * new.z.abs().amax(-1).clamp_min(1)
        if self.rounding:  # an equal value says nothing then
            return still
        return still | ((new.value - old.value).abs() <= self.change * old.value.abs())


def _pick(mask: Tensor, a: Point, b: Point) -> Point:
    return Point(*(where(mask, x, y) for x, y in zip(a, b, strict=True)))


def _pack(prefix: str, point: Point) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in point._asdict().items()}


def _unpack(prefix: str, state: State) -> Point:
    return Point(*(state[f"{prefix}.{name}"] for name in Point._fields))
