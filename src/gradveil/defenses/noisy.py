"""Normal noise on a gradient, and the limits of its options."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Generator, Tensor

from gradveil.errors import ConfigError
from gradveil.seeds import normal


def noised(gradient: Mapping[str, Tensor], deviation: float, rng: Generator) -> dict[str, Tensor]:
    return {name: g + deviation * normal(g.shape, rng, g) for name, g in gradient.items()}


def check_clip_and_noise(defense: str, clip: float, noise: float) -> None:
    if not clip > 0:
        raise ConfigError(f"{defense}: clip = {clip} is not a length, take a number > 0")
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"{defense}: noise = {noise} is not a multiple of clip, take a number >= 0")
    if noise > 0 and math.isinf(clip):
        raise ConfigError(f"{defense}: clip = {clip} bounds nothing that noise could cover, take a finite number")
