"""Gaussian noise on what is sent (Zhu et al., 2019, section 5.1; a baseline in table 4 of ATS, Gao et al., 2021).

Differs from how ATS writes it: its N(0, 1e-3) is a standard deviation in its code, and so is `scale` here. Its scales
were chosen for gradients of half the cross-entropy; at the full cross-entropy the same noise is half as strong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator

from gradveil.defenses.base import Defense, Paper
from gradveil.errors import ConfigError
from gradveil.seeds import normal
from gradveil.types import Update

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


@dataclass(frozen=True, kw_only=True)
class Gaussian(Defense):
    """Adds normal noise of standard deviation `scale` to every number of the update, whatever the update's size."""

    stronger: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float = 1e-2

    def __post_init__(self) -> None:
        if not (self.scale >= 0 and math.isfinite(self.scale)):
            raise ConfigError(f"gaussian: scale = {self.scale} is not a standard deviation, take a number >= 0")

    def surrogate(self, seen: Update) -> Defense:
        """None: the best guess of zero-mean noise is its mean, so knowing of it changes nothing in the match."""
        return Defense()

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u + self.scale * normal(u.shape, rng, u) for name, u in update.items()}
