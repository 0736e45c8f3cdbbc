"""Optimizers: functional, elementwise over trials, free of host synchronization so that a step can be a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gradveil.core.types import Latent

Signed = bool | tuple[str, ...]  # the gradient's sign instead of the gradient: for all parts of a latent, or for these
State = Mapping[str, Tensor]  # every tensor [trial, ...]; a key "done" ([trial], bool) stops a trial


class Optimizer(Protocol):
    """`step` is given the value and gradient at `z` and proposes the next point.

    A method that needs several values for one move (a line search) is a state machine: one call, one value.
    `progress` is the share of the budget that is spent, a scalar tensor in [0, 1).
    """

    def init(self, z: Latent) -> State: ...

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]: ...


class Schedule(Protocol):
    """How the rate falls: a factor for each share of the budget."""

    def __call__(self, progress: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Steps:
    """Tenfold at each mark."""

    marks: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    factor: float = 0.1

    def __call__(self, progress: Tensor) -> Tensor:
        passed = sum(((progress >= mark).to(progress) for mark in self.marks), torch.zeros_like(progress))
        return self.factor**passed


@dataclass(frozen=True)
class CosineDecay:
    """From 1 to `floor` along half a cosine."""

    floor: float = 0.0

    def __call__(self, progress: Tensor) -> Tensor:
        return self.floor + (1 - self.floor) * 0.5 * (1 + torch.cos(math.pi * progress))


@dataclass(frozen=True)
class Constant:
    def __call__(self, progress: Tensor) -> Tensor:
        return torch.ones_like(progress)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam (Kingma and Ba, 2015); `signed` uses the sign of the gradient only, as Inverting Gradients does."""

    rate: float = 0.1
    signed: Signed = False
    schedule: Schedule = Constant()
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def init(self, z: Latent) -> State:
        count = next(iter(z.values())).new_zeros(1)
        moments = {f"{kind}.{name}": torch.zeros_like(x) for kind in ("first", "second") for name, x in z.items()}
        return {"count": count, **moments}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        count = state["count"] + 1
        (b1, b2), rate = self.betas, self.rate * self.schedule(progress)
        new: dict[str, Tensor] = {"count": count}
        moved: dict[str, Tensor] = {}
        for name, x in z.items():
            g = _sign(grads, name, self.signed)
            first = new[f"first.{name}"] = torch.lerp(g, state[f"first.{name}"], b1)
            second = new[f"second.{name}"] = torch.lerp(g * g, state[f"second.{name}"], b2)
            size = (second / (1 - b2**count)).sqrt() + self.epsilon
            moved[name] = x - rate / (1 - b1**count) * first / size
        return moved, new


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Gradient descent with (Nesterov) momentum, as torch does it."""

    rate: float = 0.01
    momentum: float = 0.9
    nesterov: bool = True
    signed: Signed = False
    schedule: Schedule = Constant()

    def init(self, z: Latent) -> State:
        return {name: torch.zeros_like(x) for name, x in z.items()}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        rate = self.rate * self.schedule(progress)
        new: dict[str, Tensor] = {}
        moved: dict[str, Tensor] = {}
        for name, x in z.items():
            g = _sign(grads, name, self.signed)
            velocity = new[name] = self.momentum * state[name] + g
            moved[name] = x - rate * (g + self.momentum * velocity if self.nesterov else velocity)
        return moved, new


def _sign(grads: Latent, name: str, signed: Signed) -> Tensor:
    chosen = signed if isinstance(signed, bool) else name in signed
    return grads[name].sign() if chosen else grads[name]


# Knuth's linear congruential generator of 64 bits, of which the upper 31 are used; whole numbers of torch wrap around
FACTOR, STEP = 6364136223846793005, 1442695040888963407


@dataclass(frozen=True)
class WarmCosine:
    """Up to 1 in a line over the first share of the budget, then down to 0 along half a cosine."""

    warm: float = 0.0025
    lowest: float = 0.02  # one of the paper's 50 steps of warming up

    def __call__(self, progress: Tensor) -> Tensor:
        fall = ((progress - self.warm) / (1 - self.warm)).clamp(0, 1)
        rise = (progress / self.warm).clamp(self.lowest, 1) if self.warm else torch.ones_like(progress)
        return rise * 0.5 * (1 + torch.cos(math.pi * fall))


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """Adam with normal noise of `noise` times its rate after every step (Yin et al., 2021, algorithm 1).

    The noise of a trial follows from where the trial starts, number by number, and from nothing else: neither from the
    chunk that it is in nor from the device.
    """

    inside: Adam
    noise: float = 0.2

    def init(self, z: Latent) -> State:
        streams = {f"stream.{name}": _seed_streams(x) for name, x in z.items()}
        return {**self.inside.init(z), **streams}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        moved, new = self.inside.step(z, value, grads, state, progress)
        rate = self.noise * self.inside.rate * self.inside.schedule(progress)
        streams = {f"stream.{name}": state[f"stream.{name}"] * FACTOR + STEP for name in z}
        shaken = {name: x + rate * _normal(streams[f"stream.{name}"], x) for name, x in moved.items()}
        return shaken, {**new, **streams}


def _seed_streams(start: Tensor) -> Tensor:
    """A stream for each number, far from its neighbors': by its value and its place."""
    place = torch.arange(start[0].numel(), device=start.device).view_as(start[0])
    stream = (start.double() * 2**20).long() + place * FACTOR
    for _ in range(4):
        stream = (stream ^ (stream >> 29)) * FACTOR + STEP
    return stream


def _normal(stream: Tensor, like: Tensor) -> Tensor:
    uniform = ((stream >> 33) & (2**31 - 1)).double().add(0.5) / 2**31
    return torch.special.ndtri(uniform).to(like)
