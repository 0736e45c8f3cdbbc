"""Normal noise on a gradient, and the limits of its options."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Generator, Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import normal
from gradveil.defenses._additive import SNR, energy, numbers

NOISE = 1.0


def noised(gradient: Mapping[str, Tensor], deviation: Tensor | float, rng: Generator) -> dict[str, Tensor]:
    return {name: g + deviation * normal(g.shape, rng, g) for name, g in gradient.items()}


def noised_by_ratio(gradient: Mapping[str, Tensor], snr: float, rng: Generator) -> dict[str, Tensor]:
    """With noise so strong that 10 log10(|gradient|^2 / E|noise|^2) is `snr`, all tensors together."""
    power = energy(gradient) / numbers(gradient)
    return noised(gradient, power.sqrt() * 10 ** (-snr / 20), rng)


def check_clip_and_noise(defense: str, clip: float, noise: float, snr: float | None) -> None:
    """With an `snr` the noise follows the gradient, and no clip has to bound that."""
    if snr is not None and not SNR[0] <= snr <= SNR[1]:
        raise ConfigError(f"{defense}: snr = {snr} dB is out of range, take {SNR[0]:g} to {SNR[1]:g}")
    if snr is not None and noise != NOISE:
        raise ConfigError(f"{defense}: noise and snr both say how much noise, give one of them")
    if not clip > 0:
        raise ConfigError(f"{defense}: clip = {clip} is not a length, take a number > 0")
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"{defense}: noise = {noise} is not a multiple of clip, take a number >= 0")
    if noise > 0 and snr is None and math.isinf(clip):
        raise ConfigError(f"{defense}: clip = {clip} bounds nothing that noise could cover, take a finite number")


def refuse_account(defense: str, snr: float | None) -> None:
    """Epsilon speaks of noise whose size is fixed beforehand."""
    if snr is not None:
        raise ConfigError(
            f"{defense}: no epsilon holds with snr = {snr:g} dB, since the size of the noise depends on the client's "
            "own gradient, give noise instead"
        )
