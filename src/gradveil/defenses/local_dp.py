"""Flower's client mod `LocalDpMod`: the update is clipped, and normal noise is added to it.

The noise is that of the Gaussian mechanism (Dwork and Roth, 2014, theorem A.1). Equal to the mod of flwr 1.41 up to the
source of random numbers, with two exceptions: options by which it divides by zero are refused, and buffers, which it
clips and noises too, are none of the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Law, Round
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update
from gradveil.defenses.clip import Clip
from gradveil.defenses.gaussian import Gaussian

PAPER = Paper("The Algorithmic Foundations of Differential Privacy", "Dwork and Roth", 2014, "doi:10.1561/0400000042")


@dataclass(frozen=True, kw_only=True)
class LocalDp(Defense):
    """Flower's: clips the whole update at `clipping_norm` and adds normal noise by the classical Gaussian mechanism.

    Its standard deviation is `sensitivity` sqrt(2 log(1.25 / `delta`)) / `epsilon`. Flower takes all four as given:
    the noise is worth this epsilon where `sensitivity` is what a client can move and `epsilon` is below 1. The
    certificate is computed from the clip and the noise themselves.
    """

    strength: ClassVar[Strength | None] = Strength.by_factor("epsilon", 1e6, 1e-2, each=4)

    clipping_norm: float = 1.0
    sensitivity: float = 1.0
    epsilon: float = 1.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for option in ("clipping_norm", "epsilon"):
            if not (getattr(self, option) > 0 and math.isfinite(getattr(self, option))):
                raise ConfigError(f"local-dp: {option} = {getattr(self, option)} is out of range, take a number > 0")
        if not (self.sensitivity >= 0 and math.isfinite(self.sensitivity)):
            raise ConfigError(f"local-dp: sensitivity = {self.sensitivity} is out of range, take a number >= 0")
        if not 0 < self.delta < 1:
            raise ConfigError(f"local-dp: delta = {self.delta} is out of range, take 0 < delta < 1")

    @property
    def deviation(self) -> float:
        return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    @property
    def parts(self) -> tuple[Defense, ...]:
        """Their certificates and accounts are its own."""
        return (Clip(clip=self.clipping_norm), Gaussian(scale=self.deviation))

    def update(self, update: Update, rng: Generator) -> Update:
        for part in self.parts:
            update = part.update(update, rng)
        return update

    def quiet(self) -> Defense:
        return self.parts[0]

    def law(self, round: Round) -> Law | None:
        return self.parts[1].law(round)

    def surrogate(self, seen: Update) -> Defense:
        """Clipping without the noise: the noise's mean is zero, and clipping can be differentiated."""
        return self.parts[0].surrogate(seen)
