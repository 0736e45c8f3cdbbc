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

from gradveil.attacks.inversion.optimizer import State
from gradveil.errors import ConfigError
from gradveil.types import Latent


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


class Pairs(NamedTuple):
    """The last `memory` moves s and gradient changes y, newest last; a slot not yet filled has rho = 1 / s.y = 0."""

    s: Tensor  # [trial, memory, number]
    y: Tensor
    rho: Tensor  # [trial, memory]


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
            raise ConfigError(f"lbfgs: {self} is out of range, take rate > 0, memory >= 1 and tries >= 1")
        if not 0 < self.armijo < self.curvature < 1 or self.rounding < 0:
            raise ConfigError(f"lbfgs: {self} is out of range, take 0 < armijo < curvature < 1 and rounding >= 0")

    def init(self, z: Latent) -> State:
        x = _flat(z)
        zeros, none = torch.zeros_like(x), torch.zeros_like(x[:, 0])
        slots = zeros.unsqueeze(1).repeat(1, self.memory, 1)
        base = _pack("base", Point(x, none, zeros)) | _pack("low", Point(x, none, zeros))
        pairs = {"s": slots, "y": slots, "rho": slots[..., 0]}
        search = {"direction": zeros, "t": none, "lo": none, "hi": none}
        flags = {"tries": none.long(), "started": none.bool(), "done": none.bool()}
        return {name: tensor.clone() for name, tensor in (base | pairs | search | flags).items()}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        here, base = Point(_flat(z), value, _flat(grads)), _unpack("base", state)
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

        pairs = _push(pairs, base, best, accept & started, restart)
        settled = accept & (self._is_flat(best) | (started & self._unchanged(base, best)))
        done = done | (~started & ~finite) | (stuck & ~restart) | settled
        base = _pick(accept, best, base)
        search, direction = self._aim(search, base, pairs, accept | restart, state["direction"])

        # a done trial stays where the engine put it last; one that has just ended returns to its accepted point
        going = torch.where(_column(done), base.z, base.z + _column(search.t) * direction)
        moved = torch.where(_column(state["done"]), here.z, going)
        new = {"t": search.t, "lo": search.lo, "hi": search.hi, "tries": search.tries, "direction": direction}
        flags = {"started": started | finite, "done": done}
        points = _pack("base", base) | _pack("low", search.low)
        return _unflat(moved, z), points | pairs._asdict() | new | flags

    def _judge(self, here: Point, base: Point, finite: Tensor, state: State) -> Search:
        """Both Wolfe conditions on the move as made, and the bracket that follows. NaN is too little descent."""
        move = here.z - base.z
        expected = _dot(base.grad, move)
        slope = _dot(here.grad, move)
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
        newton = -_two_loops(base.grad, pairs)
        usable = (_dot(newton, base.grad) < 0) & newton.isfinite().all(-1) & (pairs.rho[:, -1] > 0)
        fresh = torch.where(_column(usable), newton, -base.grad)
        length = self.rate * (1 / base.grad.abs().sum(-1)).clamp(max=1.0).masked_fill(usable, 1.0)
        inside = torch.where(search.hi.isinf(), 2 * search.lo, (search.lo + search.hi) / 2)
        aimed = search._replace(
            t=torch.where(turn, length, inside),
            lo=search.lo.masked_fill(turn, 0),
            hi=search.hi.masked_fill(turn, torch.inf),
            tries=search.tries.masked_fill(turn, 0),
        )
        return aimed, torch.where(_column(turn), fresh, before)

    def _is_flat(self, point: Point) -> Tensor:
        return point.grad.abs().amax(-1) <= self.gradient

    def _unchanged(self, old: Point, new: Point) -> Tensor:
        still = (new.z - old.z).abs().amax(-1) <= self.change * new.z.abs().amax(-1).clamp_min(1)
        if self.rounding:  # an equal value says nothing then
            return still
        return still | ((new.value - old.value).abs() <= self.change * old.value.abs())


def _two_loops(grad: Tensor, pairs: Pairs) -> Tensor:
    """The inverse Hessian's guess times the gradient. Empty slots have rho = 0 and change nothing."""
    q, alphas = grad, []
    slots = range(pairs.rho.shape[1])
    for i in reversed(slots):
        alphas.append(pairs.rho[:, i] * _dot(pairs.s[:, i], q))
        q = q - _column(alphas[-1]) * pairs.y[:, i]
    q = _column(_scale(pairs)) * q
    for i in slots:
        beta = pairs.rho[:, i] * _dot(pairs.y[:, i], q)
        q = q + _column(alphas.pop() - beta) * pairs.s[:, i]
    return q


def _scale(pairs: Pairs) -> Tensor:
    """s.y / y.y of the newest pair; 1 where there is none."""
    rho, y = pairs.rho[:, -1], pairs.y[:, -1]
    return (1 / (rho * _dot(y, y))).masked_fill(rho <= 0, 1.0)


def _push(pairs: Pairs, old: Point, new: Point, accept: Tensor, clear: Tensor) -> Pairs:
    """Shift the newest pair in, where its curvature is positive beyond rounding; empty the memory where told."""
    s, y = new.z - old.z, new.grad - old.grad
    curvature = _dot(s, y)
    limits = torch.finfo(s.dtype)
    rounding = (limits.eps * s.norm(dim=-1) * y.norm(dim=-1)).clamp_min(limits.tiny)
    keep = accept & (curvature > rounding)
    newest = Pairs(s.unsqueeze(1), y.unsqueeze(1), (1 / curvature).unsqueeze(1))
    shifted = [torch.cat([held[:, 1:], one], 1) for held, one in zip(pairs, newest, strict=True)]
    taken = [_where(keep, one, held) for one, held in zip(shifted, pairs, strict=True)]
    return Pairs(*(_where(clear, torch.zeros_like(one), one) for one in taken))


def _where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *[1] * (a.dim() - 1)), a, b)


def _pick(mask: Tensor, a: Point, b: Point) -> Point:
    return Point(*(_where(mask, x, y) for x, y in zip(a, b, strict=True)))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def _column(per_trial: Tensor) -> Tensor:
    return per_trial.unsqueeze(-1)


def _pack(prefix: str, point: Point) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in point._asdict().items()}


def _unpack(prefix: str, state: State) -> Point:
    return Point(*(state[f"{prefix}.{name}"] for name in Point._fields))


def _flat(z: Latent) -> Tensor:
    return torch.cat([x.flatten(1) for x in z.values()], 1)


def _unflat(flat: Tensor, like: Latent) -> Latent:
    parts = flat.split([x[0].numel() for x in like.values()], 1)
    return {name: part.view_as(x) for (name, x), part in zip(like.items(), parts, strict=True)}
