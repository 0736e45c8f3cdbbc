"""The loop of an optimization attack: all trials of a chunk, step by step, each keeping its best point."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gradveil.core.progress import leave_if_stopped, tick
from gradveil.core.types import Labels, Latent
from gradveil.engine.matcher import JointMatcher, Matcher
from gradveil.engine.optimizer import Optimizer
from gradveil.engine.priors.prior import Penalty
from gradveil.engine.spaces.space import BoundSpace

Carry = dict[str, Tensor]
SLOW = 1.0  # seconds without a word, of steps that take long
LOOK_EVERY = 100  # steps between looks at whether everyone is done: a look waits for the device


@dataclass(frozen=True)
class Objective:
    """What the attacker minimizes: the match plus the priors."""

    matcher: Matcher
    space: BoundSpace
    penalties: tuple[Penalty, ...]
    labels: Callable[[Latent], Labels] | None = None  # where they are part of the latent

    def __call__(self, z: Latent) -> tuple[Tensor, Tensor, Latent]:
        """Total and match of each trial, and the gradient of the total."""
        with torch.enable_grad():
            leaves = {name: x.detach().requires_grad_() for name, x in z.items()}
            fed, smooth = self.space.decode(leaves), self.space.smooth(leaves)
            penalty = sum((p(smooth, fed) for p in self.penalties), fed.new_zeros(fed.shape[0]))
            labels = [] if self.labels is None else [self.labels(leaves)]
        match, *slopes = self.match(fed, *labels)
        outputs = [fed, *labels]
        if penalty.requires_grad:
            outputs.append(penalty)
            slopes.append(torch.ones_like(penalty))
        grads = torch.autograd.grad(outputs, list(leaves.values()), slopes)
        return match + penalty.detach(), match, dict(zip(leaves, grads, strict=True))

    def match(self, fed: Tensor, *labels: Tensor) -> tuple[Tensor, ...]:
        """The match and its gradient by what it was given."""
        if not labels:
            return self.matcher(fed.detach())
        return cast(JointMatcher, self.matcher).joint(fed.detach(), labels[0].detach())


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A trial stops when its objective is below `value`, or has not fallen by `share` for `patience` steps."""

    value: float = 0.0
    patience: int | None = None
    share: float = 1e-3


@dataclass(frozen=True)
class Descent:
    """One chunk's run. The carry is a flat dictionary of tensors, so that a step can be captured as a graph."""

    objective: Objective
    optimizer: Optimizer
    steps: int
    stop: Stop = Stop()

    def begin(self, z: Latent) -> Carry:
        z = self.objective.space.constrain(z)  # a line search that starts outside the box never finds its way in
        trials = len(next(iter(z.values())))
        like = next(iter(z.values()))
        far = like.new_full((trials,), torch.inf)
        carry = _with_prefix("z", z) | _with_prefix("best", z) | _with_prefix("state", self.optimizer.init(z))
        carry |= {"total": far, "match": far, "early": far, "rest_total": far, "broke": far}
        return carry | {"rested": torch.zeros_like(far), "done": far < 0, "step": like.new_zeros(())}

    @torch.no_grad()
    def advance(self, carry: Carry) -> Carry:
        z, state, progress = _under("z", carry), _under("state", carry), carry["step"] / self.steps
        total, match, grads = self.objective(z)
        new = self.keep_best(carry, z, total, match)
        moved, state = self.optimizer.step(z, total, grads, state, progress)
        moved = self.objective.space.constrain(moved)
        # a line search may step onto a bad point and come back; other optimizers cannot
        broken = torch.zeros_like(carry["done"]) if "done" in state else ~torch.isfinite(total)
        ended = state.get("done", broken)
        new["broke"] = torch.where(broken & ~carry["done"], carry["step"], carry["broke"])
        done = carry["done"] | ended | (new["total"] < self.stop.value) | self.is_tired(carry, new)
        new |= _with_prefix("z", {n: _choose(done, z[n], x) for n, x in moved.items()}) | _with_prefix("state", state)
        early = torch.where(progress < 0.9, new["total"], carry["early"])
        return new | {"early": early, "done": done, "step": carry["step"] + 1}

    def keep_best(self, carry: Carry, z: Latent, total: Tensor, match: Tensor) -> Carry:
        better = (total < carry["total"]) & ~carry["done"]  # false for NaN
        best = {name: _choose(better, x, carry[f"best.{name}"]) for name, x in z.items()}
        improved = {
            "total": torch.where(better, total, carry["total"]),
            "match": torch.where(better, match, carry["match"]),
        }
        return carry | _with_prefix("best", best) | improved

    def is_tired(self, carry: Carry, new: Carry) -> Tensor:
        if self.stop.patience is None:
            return torch.zeros_like(carry["done"])
        fell = new["total"] < (1 - self.stop.share) * carry["rest_total"]
        new["rest_total"] = torch.where(fell, new["total"], carry["rest_total"])
        new["rested"] = torch.where(fell, 0.0, carry["rested"] + 1)
        return new["rested"] >= self.stop.patience

    def run(self, z: Latent, stepper: Stepper) -> Carry:
        """All steps, then one more look at the last point."""
        carry = self.begin(z)
        step, heard = stepper(self, carry), time.monotonic()
        for i in range(self.steps):
            carry = step()
            leave_if_stopped()
            looks = (i + 1) % LOOK_EVERY == 0
            if looks or time.monotonic() - heard >= SLOW:
                tick(i + 1, self.steps)
                heard = time.monotonic()
            if looks and bool(carry["done"].all()):
                break
        with torch.no_grad():
            last = _under("z", carry)
            total, match, _ = self.objective(last)
            return self.keep_best(carry, last, total, match)


Stepper = Callable[[Descent, Carry], Callable[[], Carry]]


def eager(descent: Descent, carry: Carry) -> Callable[[], Carry]:
    """Step by step, as Python runs it."""

    def step() -> Carry:
        nonlocal carry
        carry = descent.advance(carry)
        return carry

    return step


def graph_steps(descent: Descent, carry: Carry) -> Callable[[], Carry]:
    """A step captured once as a CUDA graph and replayed: no time is lost to launches."""
    buffers = {name: x.clone() for name, x in carry.items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries choose their algorithms before the capture
            descent.advance(buffers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for name, x in descent.advance(buffers).items():
            if x is not buffers[name]:
                buffers[name].copy_(x)

    def step() -> Carry:
        graph.replay()
        return buffers

    return step


def best_of(carry: Carry) -> Latent:
    return _under("best", carry)


def _with_prefix(prefix: str, tensors: Latent) -> Carry:
    return {f"{prefix}.{name}": x for name, x in tensors.items()}


def _under(prefix: str, carry: Carry) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): x for name, x in carry.items() if name.startswith(f"{prefix}.")}


def _choose(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *[1] * (yes.dim() - 1)), yes, no)
