"""NVFlare's filter `PercentilePrivacy`: the largest changes alone are shared, and those are cut at `gamma`.

The policy is Shokri and Shmatikov's (2015). Equal to the filter of NVFlare 2.9 to the last bit, with two exceptions:
options out of range are refused (the filter then sends everything as it is), and buffers are none of the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update
from gradveil.defenses.prune import smallest

PAPER = Paper("Privacy-Preserving Deep Learning", "Shokri and Shmatikov", 2015, "doi:10.1145/2810103.2813687")


@dataclass(frozen=True, kw_only=True)
class Percentile(Defense):
    """NVFlare's: sends the numbers at or above a percentile of all magnitudes, cut at `gamma`; the others become zero.

    `gamma` is in the units of what is sent: a difference of weights, or a gradient where the local rate is 1. `steps`
    is the number of local steps that the client declares to NVFlare: magnitudes are divided by it before the cut.
    """

    stronger: ClassVar[tuple[str, ...]] = ("percentile",)
    strength: ClassVar[Strength | None] = Strength("percentile", (0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99))

    percentile: float = 10.0
    gamma: float = 0.01
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise ConfigError(f"percentile: percentile = {self.percentile} is out of range, take 0 to 100")
        if not self.gamma > 0:
            raise ConfigError(f"percentile: gamma = {self.gamma} is no magnitude, take a number > 0")
        if self.steps < 1:
            raise ConfigError(f"percentile: steps = {self.steps} is no number of local steps, take 1 or more")

    def update(self, update: Update, rng: Generator) -> Update:
        each = {name: u / self.steps for name, u in update.items()}
        cutoff = percentile_of(torch.cat([u.abs().flatten() for u in each.values()]), self.percentile)
        return {name: self._share(u, cutoff) * self.steps for name, u in each.items()}

    def _share(self, u: Tensor, cutoff: Tensor) -> Tensor:
        if u.dim() == 0:  # a single number passes as it is
            return u
        return torch.where(u.abs() < cutoff, 0.0, u.clamp(-self.gamma, self.gamma))

    def surrogate(self, seen: Update) -> Shared:
        """What was kept is plain to see, and where it is cut it is known to be that large at least."""
        return Shared(seen=seen, most=self.gamma * self.steps)


def percentile_of(numbers: Tensor, percentile: float) -> Tensor:
    """With linear interpolation, as numpy has it. quantile() refuses more than 16 million numbers."""
    place = percentile / 100 * (len(numbers) - 1)
    low, high = (smallest(numbers, at + 1) for at in (math.floor(place), math.ceil(place)))
    share = place - math.floor(place)
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


CUT = 1e-5  # of the limit: numbers nearer to it were cut


@dataclass(frozen=True, eq=False, kw_only=True)
class Shared(Defense):
    """Of the dummy's update only what was sent; beyond a cut any number will do, and short of it the number counts."""

    seen: Mapping[str, Tensor]
    most: float

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self._compare(u, self.seen[name]) for name, u in update.items()}

    def _compare(self, u: Tensor, seen: Tensor) -> Tensor:
        if u.dim() == 0:
            return u
        was_cut = seen.abs() >= self.most * (1 - CUT)
        reaches = u * seen.sign() >= self.most
        return torch.where(was_cut & reaches, seen, u) * (seen != 0)
