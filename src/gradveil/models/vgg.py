"""VGG16 (Simonyan and Zisserman, ICLR 2015) in its CIFAR form: batch normalization, and one linear layer at the end.

One of the models of LODA's cross-architecture table. Differs from the paper: the three linear layers of 4096 that
pictures of 224 pixels need are one of 512.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """VGG16: thirteen 3x3 convolutions with batch normalization, five poolings, one linear layer."""
    check_size("vgg16", shape, classes, smallest=32)
    layers, entering = normalization("vgg16", shape[0], mean, std), shape[0]
    with weights_from(seed):
        for place, widths in enumerate(STAGES, start=1):
            layers[f"stage{place}"] = _stage(entering, widths)
            entering = widths[-1]
        layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(entering, classes)}
    return nn.Sequential(OrderedDict(layers))


def _stage(entering: int, widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for leaving in widths:
        layer = nn.Conv2d(entering, leaving, kernel_size=3, padding=1)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(layer.get_parameter("bias"))
        layers += [layer, nn.BatchNorm2d(leaving), nn.ReLU()]
        entering = leaving
    return nn.Sequential(*layers, nn.MaxPool2d(2))
