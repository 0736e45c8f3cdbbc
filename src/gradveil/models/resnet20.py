"""ResNet20-4 of Inverting Gradients (Geiping et al., NeurIPS 2020): the "ResNet20" of ATS (Gao et al., CVPR 2021)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import Tensor, nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

WIDTH = 64  # four times the 16 of the original ResNet20: hence the name
BLOCKS = 3


def resnet20_4(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ResNet20-4: the 20-layer CIFAR ResNet, four times as wide (64, 128, 256 channels), 1x1 shortcuts."""
    check_size("resnet20-4", shape, classes, smallest=4)
    layers = normalization("resnet20-4", shape[0], mean, std)
    with weights_from(seed):
        layers |= {
            "stem": _stem(shape[0]),
            "layer1": _stage(WIDTH, WIDTH, stride=1),
            "layer2": _stage(WIDTH, 2 * WIDTH, stride=2),
            "layer3": _stage(2 * WIDTH, 4 * WIDTH, stride=2),
            "pool": nn.AdaptiveAvgPool2d(1),
            "flatten": nn.Flatten(),
            "fc": nn.Linear(4 * WIDTH, classes),
        }
    return nn.Sequential(OrderedDict(layers))


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(entering, leaving, kernel=3, stride=stride)
        self.norm1 = nn.BatchNorm2d(leaving)
        self.act1 = nn.ReLU()
        self.conv2 = _convolution(leaving, leaving, kernel=3, stride=1)
        self.norm2 = nn.BatchNorm2d(leaving)
        self.shortcut = nn.Identity() if (entering, stride) == (leaving, 1) else _shortcut(entering, leaving, stride)
        self.act2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        residual = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(residual + self.shortcut(x))


def _stem(channels: int) -> nn.Sequential:
    conv = _convolution(channels, WIDTH, kernel=3, stride=1)
    return nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm2d(WIDTH), act=nn.ReLU()))


def _stage(entering: int, leaving: int, stride: int) -> nn.Sequential:
    first = Block(entering, leaving, stride)
    return nn.Sequential(first, *(Block(leaving, leaving, stride=1) for _ in range(BLOCKS - 1)))


def _shortcut(entering: int, leaving: int, stride: int) -> nn.Sequential:
    conv = _convolution(entering, leaving, kernel=1, stride=stride)
    return nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm2d(leaving)))


def _convolution(entering: int, leaving: int, kernel: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(entering, leaving, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
