"""MobileNetV2 (Sandler et al., CVPR 2018), one of the architectures of ATS (Gao et al., CVPR 2021, table 8).

From 112 pixels on with the strides of the paper. Below, the first two halvings are left out, as is usual on CIFAR:
32 pixels would otherwise be one before the last blocks. Differs: weights start at the size that carries a signal
through an untrained network in eval mode too. The usual start counts all outputs of a depthwise layer as if they were
joined, which shrinks a signal to 1e-10 of itself where no batch statistics restore it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
FIRST, LAST = 32, 1280  # channels
LARGE = 112


def mobilenet_v2(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """MobileNetV2: inverted residuals with depthwise convolutions and ReLU6; two halvings fewer below 112 pixels."""
    check_size("mobilenet-v2", shape, classes, smallest=8)
    large = min(shape[1:]) >= LARGE
    layers = normalization("mobilenet-v2", shape[0], mean, std)
    with weights_from(seed):
        layers["stem"] = nn.Sequential(*_convolution(shape[0], FIRST, kernel=3, stride=2 if large else 1))
        layers["blocks"] = nn.Sequential(*_blocks(large))
        layers["last"] = nn.Sequential(*_convolution(STAGES[-1][1], LAST, kernel=1))
        layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(LAST, classes)}
        nn.init.normal_(layers["fc"].get_parameter("weight"), std=0.01)
        nn.init.zeros_(layers["fc"].get_parameter("bias"))
    return nn.Sequential(OrderedDict(layers))


class Inverted(nn.Module):
    """Widen, look around in each channel alone, narrow; a shortcut where the size stays."""

    def __init__(self, entering: int, leaving: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = entering * expansion
        widen = _convolution(entering, wide, kernel=1) if expansion > 1 else []
        look = _convolution(wide, wide, kernel=3, stride=stride, groups=wide, after="relu")
        narrow = _convolution(wide, leaving, kernel=1, after="relu")[:-1]  # linear: ReLU would lose too much here
        self.inside = nn.Sequential(*widen, *look, *narrow)
        self.shortcut = (entering, stride) == (leaving, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inside(x) if self.shortcut else self.inside(x)


def _blocks(large: bool) -> list[nn.Module]:
    blocks: list[nn.Module] = []
    entering = FIRST
    for place, (expansion, leaving, depth, stride) in enumerate(STAGES):
        first = 1 if place == 1 and not large else stride
        for number in range(depth):
            blocks.append(Inverted(entering, leaving, first if number == 0 else 1, expansion))
            entering = leaving
    return blocks


def _convolution(
    entering: int,
    leaving: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    after: Literal["linear", "relu"] = "linear",
) -> list[nn.Module]:
    layer = nn.Conv2d(entering, leaving, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity=after)
    return [layer, nn.BatchNorm2d(leaving), nn.ReLU6()]
