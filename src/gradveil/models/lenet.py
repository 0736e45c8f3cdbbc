"""LeNetZhu, the network of Deep Leakage from Gradients (Zhu et al., NeurIPS 2019)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

CHANNELS = 12
REACH = 0.5  # every weight and bias is uniform in [-0.5, 0.5], as in the authors' code


def lenet(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """LeNetZhu, the network of DLG: three 5x5 convolutions with sigmoids and one linear layer; easy to invert."""
    check_size("lenet", shape, classes, smallest=4)
    channels, height, width = shape
    layers = normalization("lenet", channels, mean, std)
    with weights_from(seed):
        layers |= _convolution(1, channels, stride=2) | _convolution(2, CHANNELS, stride=2)
        layers |= _convolution(3, CHANNELS, stride=1) | {"flatten": nn.Flatten()}
        layers |= {"fc": nn.Linear(CHANNELS * ceil(height / 4) * ceil(width / 4), classes)}
        for parameter in nn.ModuleDict(layers).parameters():
            nn.init.uniform_(parameter, -REACH, REACH)
    return nn.Sequential(OrderedDict(layers))


def _convolution(place: int, channels: int, stride: int) -> dict[str, nn.Module]:
    convolution = nn.Conv2d(channels, CHANNELS, kernel_size=5, stride=stride, padding=2)
    return {f"conv{place}": convolution, f"act{place}": nn.Sigmoid()}
