"""The papers' models by name. Each factory takes `classes`, `shape`, `seed` and the constants `mean` and `std`."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from gradveil.models.convnet import of_width
from gradveil.models.densenet import densenet121
from gradveil.models.lenet import lenet
from gradveil.models.mlp import mlp
from gradveil.models.mobilenet_v2 import mobilenet_v2
from gradveil.models.resnet import resnet18, resnet18_plain, resnet34
from gradveil.models.resnet20 import resnet20_4
from gradveil.models.user import load_model
from gradveil.models.vgg import lenet5, vgg7, vgg16
from gradveil.models.vit import of_width as vit_of_width
from gradveil.models.weights import load_weights

MODELS: dict[str, Callable[..., nn.Module]] = {
    "lenet": lenet,
    "convnet8": of_width(
        8, "ConvNet of width 8: eight convolutions with batch normalization, the smallest of the ATS paper."
    ),
    "convnet32": of_width(32, "ConvNet of width 32: eight convolutions with batch normalization, as in the ATS paper."),
    "convnet64": of_width(
        64, "ConvNet of width 64: eight convolutions with batch normalization, as in Inverting Gradients."
    ),
    "resnet20-4": resnet20_4,
    "mlp": mlp,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "mobilenet-v2": mobilenet_v2,
    "vit-tiny": vit_of_width(192, 3, "Vision transformer, tiny: 12 blocks of width 192 with 3 heads, from scratch."),
    "vit-small": vit_of_width(384, 6, "Vision transformer, small: 12 blocks of width 384 with 6 heads, from scratch."),
    "vgg16": vgg16,
    "lenet5": lenet5,
    "vgg7": vgg7,
    "resnet18-plain": resnet18_plain,
    "densenet121": densenet121,
}

__all__ = ["MODELS", "load_model", "load_weights"]
