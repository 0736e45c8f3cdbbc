"""An update among rounds with draws of our own: how much further from them than they are from each other."""

from __future__ import annotations

import torch
from torch import Tensor


def compare_with_draws(update: Tensor, draws: list[Tensor]) -> tuple[float, float]:
    """Of one tensor: how much further from the mean of the draws it is, or nearer, than each of them is from the mean
    of the others, across that mean and along it; and how far they are themselves."""
    whole = torch.stack(draws).sum(0)
    means = [(whole - one) / (len(draws) - 1) for one in draws]
    own = [_project(one, mean) for one, mean in zip(draws, means, strict=True)]
    here = [_project(update, mean) for mean in means]
    beyond = 0.0
    for along_or_across, value in enumerate(zip(*here, strict=True)):
        known, found = [one[along_or_across] for one in own], sum(value) / len(value)
        beyond += max(found - max(known), min(known) - found, 0.0) ** 2
    return beyond**0.5, (sum(along**2 + across**2 for along, across in own) / len(own)) ** 0.5


def _project(one: Tensor, mean: Tensor) -> tuple[float, float]:
    """How far `one` is from the mean along the mean, with its sign, and across it."""
    unit = mean / mean.norm().clamp_min(1e-300)
    apart = one - mean
    along = float(apart @ unit)
    return along, float((apart - along * unit).norm())
