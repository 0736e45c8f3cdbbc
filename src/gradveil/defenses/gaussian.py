"""Gaussian noise on what is sent (Zhu et al., 2019, section 5.1; a baseline in table 4 of ATS, Gao et al., 2021).

Differs from how ATS writes it: its N(0, 1e-3) is a standard deviation in its code, and so is `scale` here. Its scales
were chosen for gradients of half the cross-entropy; at the full cross-entropy the same noise is half as strong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from gradveil.core.law import Law, Normal
from gradveil.core.paper import Paper
from gradveil.core.seeds import normal
from gradveil.defenses._noise import AdditiveNoise

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


@dataclass(frozen=True, kw_only=True)
class Gaussian(AdditiveNoise):
    """Adds normal noise: standard deviation `scale`, or size `relative` to the update, or `snr` in dB."""

    name: ClassVar[str] = "gaussian"
    deviation: ClassVar[float] = 1.0

    def draw_noise(self, like: Tensor, rng: Generator) -> Tensor:
        return normal(like.shape, rng, like)

    def law_of_noise(self) -> Law:
        relative = None if self.noise_by_signal is None else self.noise_by_signal**0.5
        return Normal(deviation=self.scale, relative=relative)

    @property
    def update_noise(self) -> float | None:
        return self.scale if self.noise_by_signal is None else None
