"""signSGD (Bernstein et al., 2018; equation 5 of ROG, Yue et al., 2023).

Differs: zero stays zero. The surrogate divides by mean |u| before tanh, since equation 15 of ROG, tanh(u) as it stands,
is a straight line at the size of a trained model's gradients; `sharpness = 0` is equation 15 to the letter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Law, Normal, Signs
from gradveil.core.paper import Paper
from gradveil.core.types import Update

PAPER = Paper("signSGD: Compressed Optimisation for Non-Convex Problems", "Bernstein et al.", 2018, "arXiv:1802.04434")


@dataclass(frozen=True, kw_only=True)
class Sign(Defense):
    """Sends the sign of every number; with `scaled`, times the mean magnitude of its tensor.

    `sharpness` belongs to the attacker who knows: how steep the tanh is that stands for the sign.
    """

    scaled: bool = False
    sharpness: float = 1.0

    def __post_init__(self) -> None:
        if not (self.sharpness >= 0 and math.isfinite(self.sharpness)):
            raise ConfigError(f"sign: sharpness = {self.sharpness} is out of range, take a number >= 0 (0: plain tanh)")

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u.sign() * (u.abs().mean() if self.scaled else 1) for name, u in update.items()}

    def censor(self, law: Law) -> Law | None:
        """Scaled, the mean magnitude tells a little more than the signs do."""
        if not isinstance(law, Normal) or law.relative is not None:
            return None
        return Signs(law, exact=law.exact and not self.scaled)

    def surrogate(self, seen: Update) -> SoftSign:
        return SoftSign(scaled=self.scaled, sharpness=self.sharpness)


@dataclass(frozen=True, kw_only=True)
class SoftSign(Defense):
    """tanh in the place of the sign: tanh(sharpness * u / mean |u|), or tanh(u) if the sharpness is 0."""

    scaled: bool = False
    sharpness: float = 1.0

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.soften(u) for name, u in update.items()}

    def soften(self, u: Tensor) -> Tensor:
        size = u.abs().mean().clamp_min(torch.finfo(u.dtype).tiny)
        soft = torch.tanh(self.sharpness * u / size if self.sharpness else u)
        return soft * size if self.scaled else soft
