"""A perceptron whose first layer is linear: what a closed-form inversion of the first layer needs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import prod

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from


def mlp(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """Perceptron with hidden layers of 256 and 128; its first layer is linear, so one picture leaks exactly."""
    check_size("mlp", shape, classes, smallest=1)
    layers = normalization("mlp", shape[0], mean, std)
    with weights_from(seed):
        layers |= {
            "flatten": nn.Flatten(),
            "fc1": nn.Linear(prod(shape), 256),
            "act1": nn.ReLU(),
            "fc2": nn.Linear(256, 128),
            "act2": nn.ReLU(),
            "fc": nn.Linear(128, classes),
        }
    return nn.Sequential(OrderedDict(layers))
