"""The network of `tradeoff.py`: so small that one core trains it a dozen times in minutes, and inverts it too."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from gradveil.data.cifar import CIFAR10
from gradveil.models.normalize import Normalize


def small_mlp(classes: int) -> nn.Module:
    """One hidden layer of 32 with ReLU, for CIFAR's 32x32 in color: one picture alone leaks in closed form."""
    layers = {
        "normalize": Normalize(CIFAR10.mean, CIFAR10.std),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(3 * 32 * 32, 32),
        "act1": nn.ReLU(),
        "fc": nn.Linear(32, classes),
    }
    return nn.Sequential(OrderedDict(layers))
