"""Noise along the way, so that a search does not settle in the first hollow, and the schedule that goes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.types import Latent
from gradveil.engine.optimizer import Adam, State

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
        streams = {f"stream.{name}": _seeded(x) for name, x in z.items()}
        return {**self.inside.init(z), **streams}

    def step(self, z: Latent, value: Tensor, grads: Latent, state: State, progress: Tensor) -> tuple[Latent, State]:
        moved, new = self.inside.step(z, value, grads, state, progress)
        rate = self.noise * self.inside.rate * self.inside.schedule(progress)
        streams = {f"stream.{name}": state[f"stream.{name}"] * FACTOR + STEP for name in z}
        shaken = {name: x + rate * _normal(streams[f"stream.{name}"], x) for name, x in moved.items()}
        return shaken, {**new, **streams}


def _seeded(start: Tensor) -> Tensor:
    """A stream for each number, far from its neighbors': by its value and its place."""
    place = torch.arange(start[0].numel(), device=start.device).view_as(start[0])
    stream = (start.double() * 2**20).long() + place * FACTOR
    for _ in range(4):
        stream = (stream ^ (stream >> 29)) * FACTOR + STEP
    return stream


def _normal(stream: Tensor, like: Tensor) -> Tensor:
    uniform = ((stream >> 33) & (2**31 - 1)).double().add(0.5) / 2**31
    return torch.special.ndtri(uniform).to(like)
