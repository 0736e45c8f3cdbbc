"""Trap weights: rows that most pictures leave inactive (Boenisch et al., 2023)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.seeds import Seed, normal

LARGEST_POOL = 2**24  # numbers that are drawn; more units take overlapping windows of them
UNTUNED = 0.97  # scale of the positive half for a server without public pictures, for some ten pictures in [0, 1]


def trap_rows(
    units: int, pixels: int, sigma: float, scale: float, seed: Seed, like: Tensor
) -> Float[Tensor, "unit pixel"]:
    """Half of each row negative, and the same sizes times `scale` in the other half.

    Pixels are paired at random, once; of each pair a coin per row says which is negative. An odd pixel is left out.
    """
    half = pixels // 2
    size = min(units * half, max(LARGEST_POOL, 2 * half))
    pool = normal((size,), seed.at("traps").rng(), like) * sigma
    start = torch.arange(units, device=like.device) * half % (size - half + 1)
    drawn = pool.unfold(0, half, 1)[start]
    first, second = torch.randperm(pixels, generator=seed.at("pairs").rng())[: 2 * half].to(like.device).view(2, half)
    rows = torch.zeros(units, pixels, dtype=like.dtype, device=like.device)
    rows[:, first] = torch.where(drawn > 0, -drawn, -scale * drawn)
    rows[:, second] = torch.where(drawn > 0, scale * drawn, drawn)
    return rows


def tuned_bias(weight: Tensor, pictures: Tensor, examples: int) -> Float[Tensor, " unit"]:
    """Of each row, the bias at which one in `examples` public pictures activates it.

    A batch of that size then holds exactly one such picture as often as it can, 1 / e of the time for large ones.
    """
    return bias_at(pictures @ weight.T, examples)


def bias_at(level: Tensor, examples: int) -> Float[Tensor, " unit"]:
    """Of what rows measure of pictures, [picture, unit], the bias above which one in `examples` is."""
    level = level.sort(0).values
    place = (1 - 1 / max(examples, 2)) * (len(level) - 1)
    low = int(place)
    high = min(low + 1, len(level) - 1)
    return -(level[low] + (place - low) * (level[high] - level[low]))
