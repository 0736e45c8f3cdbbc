"""Tiny federations for the tests of the local engine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gradveil.core.types import Batch


def pictures(count: int = 24, classes: int = 3, seed: int = 0) -> Batch:
    """Noise with a bright row that tells the class."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    images = 0.3 * torch.rand(count, 1, 6, 6, generator=rng)
    images[torch.arange(count), 0, labels] += 0.6
    return Batch(images, torch.eye(classes)[labels])


def plain_model(classes: int = 3) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, classes))


def normalized_model(classes: int = 3) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, classes))


def far(one: Mapping[str, Tensor] | nn.Module, other: Mapping[str, Tensor] | nn.Module) -> float:
    """The largest difference of any number."""
    first, second = (x.state_dict() if isinstance(x, nn.Module) else x for x in (one, other))
    assert first.keys() == second.keys()
    return max(float((first[name].double() - second[name].double()).abs().max()) for name in first)
