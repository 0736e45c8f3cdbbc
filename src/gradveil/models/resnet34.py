"""ResNet34 (He et al., CVPR 2016): ResNet18 with twice the blocks; in LODA's cross-architecture table."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from gradveil.models.resnet18 import residual
from gradveil.models.start import Shape


def resnet34(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ResNet34: sixteen residual blocks of 64 to 512 channels; first layers as in resnet18."""
    return residual("resnet34", (3, 4, 6, 3), classes, shape, seed, mean, std)
