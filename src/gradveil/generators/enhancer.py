"""ROG's enhancement (Yue et al., 2023, appendix A): a network that undoes what low resolution and noise do.

It is a U-Net of convolution, instance normalization and ReLU. The picture is halved four times and the encoder's maps
are handed across, as in the paper. Differs: the network says what is to be added to the picture, and nothing is
normalized at full resolution: how strong the noise is would be lost.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.generators.stored import load_network

KIND = "enhancer"
AT_ONCE = 64  # pictures; each is normalized by itself, so that the number does not matter
DEPTH = 4
FACTOR = 2**DEPTH
SMALLEST = 2 * FACTOR  # one pixel alone cannot be normalized at the lowest level


def _stage(entering: int, leaving: int, stride: int = 1, normed: bool = True) -> nn.Sequential:
    """Two convolutions; the first may halve the picture."""
    layers: list[nn.Module] = []
    for before, step in ((entering, stride), (leaving, 1)):
        layers.append(nn.Conv2d(before, leaving, 3, stride=step, padding=1))
        layers += [nn.InstanceNorm2d(leaving, affine=True)] if normed else []
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Pictures [n, c, h, w] of any size to pictures of the same size. Not clamped: a clamp would stop learning."""

    def __init__(self, *, channels: int = 3, width: int = 48) -> None:
        super().__init__()
        widths = [width * min(2**level, 8) for level in range(DEPTH + 1)]
        self.file = ""
        self.first = nn.Conv2d(channels, width, 5, padding=2)
        self.entry = _stage(width, width, normed=False)
        self.down = nn.ModuleList(_stage(above, below, stride=2) for above, below in pairwise(widths))
        self.up = nn.ModuleList(
            _stage(below + above, above, normed=level > 0)
            for level, (above, below) in reversed(list(enumerate(pairwise(widths))))
        )
        self.last = nn.Conv2d(width + channels, channels, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(cast(Tensor, layer.bias))
        nn.init.normal_(self.last.weight, std=1e-3)  # an untrained network changes little

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        framed = pad(images)
        maps = [self.entry(self.first(2 * framed - 1))]
        for stage in self.down:
            maps.append(stage(maps[-1]))
        inner = maps.pop()
        for stage in self.up:
            across = maps.pop()
            inner = stage(torch.cat([F.interpolate(inner, scale_factor=2.0, mode="nearest"), across], 1))
        added = self.last(torch.cat([inner, framed], 1))
        return (framed + added)[..., :height, :width]


def pad(images: Tensor) -> Tensor:
    """With the last row and column repeated until the sides can be halved four times."""
    right, below = (max(SMALLEST, -(-side // FACTOR) * FACTOR) - side for side in reversed(images.shape[-2:]))
    return F.pad(images, (0, right, 0, below), mode="replicate") if right or below else images


@dataclass(frozen=True, kw_only=True)
class Enhancer:
    """Pictures [*lead, c, h, w] in [0, 1] to better ones, on their device and in their precision."""

    network: UNet

    @property
    def file(self) -> str:
        return self.network.file

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        network = copy.deepcopy(self.network).to(images.device)
        parts = images.reshape(-1, *images.shape[-3:]).float().split(AT_ONCE)
        better = torch.cat([network(part) for part in parts]).clamp(0, 1)
        return better.reshape(images.shape).to(images.dtype)

    def __repr__(self) -> str:
        return f"Enhancer(file={self.file!r})"


def load_enhancer(path: str | Path) -> Enhancer:
    """From the file that `gradveil train-generator enhancer` wrote."""
    return Enhancer(network=load_network(path, KIND, UNet))
