"""A tagger for pictures of 32 pixels: ResNet20-4, trained on CIFAR-100 (`gradveil train`); its tags are classes.

    RESNET20_WEIGHTS=FILE.safetensors python3 papers/rog/semantic.py cifar100 --tagger papers/rog/cifar_tagger.py:tagger

EfficientNet-Lite0 knows ImageNet's classes and was not made for pictures as small as these. The victims are of the test
part, the network was trained on the other.
"""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.models.resnet20 import resnet20_4
from gradveil.models.weights import load_weights

VARIABLE = "RESNET20_WEIGHTS"


def tagger(classes: int, shape: tuple[int, int, int]) -> nn.Module:
    """The classifier with the weights of the file that the variable names."""
    if VARIABLE not in os.environ:
        raise ConfigError(f"{VARIABLE} is not set, name a file of gradveil train --model resnet20-4")
    zeros, ones = (0.0,) * shape[0], (1.0,) * shape[0]  # the file has its own mean and deviation of pixels
    network = resnet20_4(classes=classes, shape=shape, mean=zeros, std=ones)
    load_weights(network, Path(os.environ[VARIABLE]))
    return network.eval()
