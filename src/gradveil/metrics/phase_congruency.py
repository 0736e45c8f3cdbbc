"""Phase congruency (Kovesi, Image Features from Phase Congruency, 1999), with the settings of FSIM.

A feature is where the waves of all lengths are in step: local energy over the sum of amplitudes, from 0 to 1, in four
directions, less what noise alone would give.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

SCALES, DIRECTIONS = 4, 4
SHORTEST, LONGER = 6.0, 2.0  # pixels of the shortest wave, and each next one's factor
BANDWIDTH = 0.55  # of a log-Gabor filter: spread / center frequency
NARROW = 1.2  # a direction's width is pi / DIRECTIONS / NARROW
CUTOFF, SHARPNESS = 0.45, 15  # of the low pass that keeps the corners of the spectrum out
NOISE, CORRECTION = 2.0, 1.7  # deviations above the mean noise, and an empirical divisor
NOTHING = 1e-4

Planes = Float[Tensor, "image height width"]
Waves = Complex[Tensor, "image scale height width"]


def phase_congruency(gray: Planes) -> Planes:
    """Of pictures with levels from 0 to 255."""
    # without its mean, which no filter passes, a flat picture is exactly nothing
    spectrum = torch.fft.fft2(gray - gray.mean((1, 2), keepdim=True))
    energy = amplitude = torch.zeros_like(gray)
    radial, angular = filters(gray)
    for direction in angular:
        bank = radial * direction  # [scale, y, x]
        waves = torch.fft.ifft2(spectrum[:, None] * bank)
        energy = energy + (in_step(waves) - noise(waves, bank)[:, None, None]).clamp_min(0)
        amplitude = amplitude + waves.abs().sum(1)
    return torch.where(amplitude > 0, energy / torch.where(amplitude > 0, amplitude, 1.0), 0.0)


def in_step(waves: Waves) -> Planes:
    """Along the mean phase, less what is across it."""
    total = waves.sum(1, keepdim=True)
    mean = total / (total.abs() + NOTHING)
    turned = waves * mean.conj()
    return (turned.real - turned.imag.abs()).sum(1)


def noise(waves: Waves, bank: Tensor) -> Float[Tensor, " image"]:
    """What noise would give: its power is read off the finest scale, where the median is hardly touched by features;
    amplitudes of noise follow Rayleigh's distribution."""
    power = median(waves[:, 0].abs().square()) / math.log(2) / bank[0].square().sum()
    kernels = torch.fft.ifft2(bank).real * math.sqrt(bank[0].numel())
    spread = (power * kernels.sum(0).square().sum()).sqrt()
    return spread * (math.sqrt(math.pi / 2) + NOISE * math.sqrt(2 - math.pi / 2)) / CORRECTION


def median(planes: Planes) -> Float[Tensor, " image"]:
    """The middle value, or the mean of the two: torch's own takes the lower."""
    ordered = planes.flatten(1).sort(1).values
    count = ordered.shape[1]
    return (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2


def filters(gray: Planes) -> tuple[Tensor, Tensor]:
    """Log-Gabor filters [scale, y, x] and their directions [direction, y, x], over the frequencies of torch.fft."""
    y, x = torch.meshgrid(*(frequencies(size, gray) for size in gray.shape[1:]), indexing="ij")
    radius, angle = (x.square() + y.square()).sqrt(), torch.atan2(-y, x)
    low_pass = 1 / (1 + (radius / CUTOFF) ** (2 * SHARPNESS))
    radius[0, 0] = 1.0  # no logarithm of 0; the mean is taken out below
    scales = [SHORTEST * LONGER**s for s in range(SCALES)]
    width = 2 * math.log(BANDWIDTH) ** 2
    radial = torch.stack([(-(radius * wave).log().square() / width).exp() * low_pass for wave in scales])
    radial[:, 0, 0] = 0.0
    return radial, torch.stack([towards(angle, k * math.pi / DIRECTIONS) for k in range(DIRECTIONS)])


def frequencies(size: int, like: Tensor) -> Tensor:
    """From -1/2 to 1/2, the zero first. Kovesi's: an odd number of them reaches both ends."""
    steps = torch.arange(size, dtype=like.dtype, device=like.device) - size // 2
    return torch.fft.ifftshift(steps / max(size - size % 2, 1))


def towards(angle: Tensor, direction: float) -> Tensor:
    """A Gaussian of the angle to a direction, the short way round."""
    away = torch.atan2((angle - direction).sin(), (angle - direction).cos())
    return (-away.square() / (2 * (math.pi / DIRECTIONS / NARROW) ** 2)).exp()
