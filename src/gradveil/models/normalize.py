"""Normalization belongs to the model: everything outside speaks of pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """(x - mean) / std per channel, the first layer of a model."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


def constants_of(model: nn.Module, channels: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the model's first `Normalize` layer; 0 and 1 where it has none."""
    for layer in model.modules():
        if isinstance(layer, Normalize):
            return layer.mean.flatten(), layer.std.flatten()
    return torch.zeros(channels), torch.ones(channels)
