"""ResNet18 and ResNet34 (He et al., CVPR 2016), as ATS (Gao et al., CVPR 2021), ROG and LODA attack them.

From 64 pixels on they begin as on ImageNet, with a 7x7 convolution and a pool; below, with one 3x3 convolution, as on
CIFAR. Shortcuts that change size are 1x1 convolutions. ResNet34 is ResNet18 with twice the blocks.

`resnet18_plain` has no normalization, as in ROG (Yue et al., 2023, section 4.2). Its convolutions start as torch starts
them: with the larger weights that go with batch normalization an untrained network of eighteen layers without it has
logits in the thousands. Differs from ROG's code in the mean over all positions where the code takes windows of 8 x 8,
and in the bias of the last layer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from gradveil.models.resnet20 import Block
from gradveil.models.start import Shape, check_size, normalization, weights_from

WIDTHS = (64, 128, 256, 512)
LARGE = 64  # pixels from which a picture is shrunk to a quarter before the first block


def resnet18(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ResNet18: eight residual blocks of 64 to 512 channels; first layers of ImageNet from 64 pixels on, or CIFAR's."""
    return residual("resnet18", (2, 2, 2, 2), classes, shape, seed, mean, std)


def residual(
    name: str,
    depths: Sequence[int],
    classes: int,
    shape: Shape,
    seed: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> nn.Module:
    """A ResNet of basic blocks, `depths` of them in each of four stages."""
    check_size(name, shape, classes, smallest=8)
    layers = normalization(name, shape[0], mean, std)
    with weights_from(seed):
        layers["stem"] = stem(shape, WIDTHS[0])
        entering = WIDTHS[0]
        for place, (depth, leaving) in enumerate(zip(depths, WIDTHS, strict=True), start=1):
            layers[f"layer{place}"] = _stage(entering, leaving, depth, stride=1 if place == 1 else 2)
            entering = leaving
        layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(entering, classes)}
    return nn.Sequential(OrderedDict(layers))


def stem(shape: Shape, width: int) -> nn.Sequential:
    """What stands before the first block."""
    channels, large = shape[0], min(shape[1:]) >= LARGE
    conv = nn.Conv2d(channels, width, 7, 2, 3, bias=False) if large else nn.Conv2d(channels, width, 3, 1, 1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=conv, norm=nn.BatchNorm2d(width), act=nn.ReLU())
    if large:
        layers["pool"] = nn.MaxPool2d(3, stride=2, padding=1)
    return nn.Sequential(layers)


def _stage(entering: int, leaving: int, depth: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Block(entering, leaving, stride), *(Block(leaving, leaving, 1) for _ in range(depth - 1)))


def resnet18_plain(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ResNet18 without normalization inside: the eight residual blocks and nothing between the convolutions."""
    model = resnet18(classes=classes, shape=shape, seed=seed, mean=mean, std=std)
    norms = [name for name, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    for name in norms:
        model.set_submodule(name, nn.Identity())
    with weights_from(seed):
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.reset_parameters()
    return model


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
