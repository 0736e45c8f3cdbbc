"""Laplacian noise on what is sent (Zhu et al., 2019, section 5.1; a baseline in table 4 of ATS, Gao et al., 2021).

`scale` is the distribution's b; its standard deviation is sqrt(2) b. On ATS's scales see `gaussian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from gradveil.defenses.base import Defense, Paper
from gradveil.errors import ConfigError
from gradveil.seeds import uniform
from gradveil.types import Update

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


@dataclass(frozen=True, kw_only=True)
class Laplacian(Defense):
    """Adds Laplacian noise of `scale` to every number of the update, whatever the update's size."""

    stronger: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float = 1e-2

    def __post_init__(self) -> None:
        if not (self.scale >= 0 and math.isfinite(self.scale)):
            raise ConfigError(f"laplacian: scale = {self.scale} is not a scale, take a number >= 0")

    def surrogate(self, seen: Update) -> Defense:
        """None: the best guess of zero-mean noise is its mean, so knowing of it changes nothing in the match."""
        return Defense()

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u + self.scale * _laplace(rng, u) for name, u in update.items()}


def _laplace(rng: Generator, like: Tensor) -> Tensor:
    """The difference of two exponentials: unlike the inverse distribution function, it never takes log(0)."""
    first, second = (-(-uniform(like.shape, rng, like)).log1p() for _ in range(2))
    return first - second
