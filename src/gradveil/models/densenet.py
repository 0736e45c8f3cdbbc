"""DenseNet121 (Huang et al., CVPR 2017): every layer sees what all layers of its block before it have made.

One of the models of LODA's cross-architecture table. ImageNet's first layers from 64 pixels on, else CIFAR's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gradveil.models.resnet import stem
from gradveil.models.start import Shape, check_size, normalization, weights_from

GROWTH = 32  # channels that each layer adds
DEPTHS = (6, 12, 24, 16)


def densenet121(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """DenseNet121: 58 dense layers that add 32 channels each, three transitions that halve them."""
    check_size("densenet121", shape, classes, smallest=8)
    layers, width = normalization("densenet121", shape[0], mean, std), 2 * GROWTH
    with weights_from(seed):
        layers["stem"] = stem(shape, width)
        for place, depth in enumerate(DEPTHS, start=1):
            layers[f"block{place}"] = nn.Sequential(*(Dense(width + k * GROWTH) for k in range(depth)))
            width += depth * GROWTH
            if place < len(DEPTHS):
                layers[f"transition{place}"] = nn.Sequential(*_convolution(width, width // 2, 1), nn.AvgPool2d(2))
                width //= 2
        layers |= {"norm": nn.BatchNorm2d(width), "act": nn.ReLU(), "pool": nn.AdaptiveAvgPool2d(1)}
        layers |= {"flatten": nn.Flatten(), "fc": nn.Linear(width, classes)}
    return nn.Sequential(OrderedDict(layers))


class Dense(nn.Module):
    """Two convolutions whose result is put beside what entered."""

    def __init__(self, entering: int) -> None:
        super().__init__()
        self.narrow = nn.Sequential(*_convolution(entering, 4 * GROWTH, 1))
        self.look = nn.Sequential(*_convolution(4 * GROWTH, GROWTH, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.look(self.narrow(x))], 1)


def _convolution(entering: int, leaving: int, kernel: int) -> list[nn.Module]:
    """Normalization and ReLU first, then the convolution."""
    layer = nn.Conv2d(entering, leaving, kernel, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return [nn.BatchNorm2d(entering), nn.ReLU(), layer]
