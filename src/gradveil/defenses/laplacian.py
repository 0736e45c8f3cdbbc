"""Laplacian noise on what is sent (Zhu et al., 2019, section 5.1; a baseline in table 4 of ATS, Gao et al., 2021).

`scale` is the distribution's b; its standard deviation is sqrt(2) b. On ATS's scales see `gaussian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from gradveil.core.law import Laplace, Law
from gradveil.core.paper import Paper
from gradveil.core.seeds import uniform
from gradveil.defenses._noise import AdditiveNoise

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


@dataclass(frozen=True, kw_only=True)
class Laplacian(AdditiveNoise):
    """Adds Laplacian noise: scale `scale`, or size `relative` to the update, or `snr` in dB."""

    name: ClassVar[str] = "laplacian"
    deviation: ClassVar[float] = math.sqrt(2)

    def draw_noise(self, like: Tensor, rng: Generator) -> Tensor:
        """The difference of two exponentials: unlike the inverse distribution function, it never takes log(0)."""
        first, second = (-(-uniform(like.shape, rng, like)).log1p() for _ in range(2))
        return first - second

    def law_of_noise(self) -> Law:
        relative = None if self.noise_by_signal is None else self.noise_by_signal**0.5 / self.deviation
        return Laplace(scale=self.scale, relative=relative)
