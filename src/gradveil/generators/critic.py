"""The opponent of the conditional GAN: residual, spectrally normalized (Miyato et al., 2018), classes by projection
(Miyato and Koyama, 2018)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import register_parametrization

KEPT = 8  # pixels: blocks that halve come before, blocks that do not after


class Critic(nn.Module):
    """Pictures in [0, 1] and labels to one number each: real above 0."""

    def __init__(self, *, classes: int, size: tuple[int, int, int], width: int = 128) -> None:
        super().__init__()
        channels, side, _ = size
        self.blocks = nn.ModuleList([Block(channels, width, halves=True, first=True)])
        side //= 2
        while side > KEPT:
            self.blocks.append(Block(width, width, halves=True))
            side //= 2
        self.blocks.extend(Block(width, width, halves=False) for _ in range(2))
        self.score = normalize(nn.Linear(width, 1))
        self.project = normalize(nn.Linear(classes, width, bias=False))

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = 2 * images - 1
        for block in self.blocks:
            x = block(x)
        seen = F.relu(x).sum((2, 3))
        return self.score(seen)[:, 0] + (self.project(labels) * seen).sum(1)


class Block(nn.Module):
    """Two convolutions and a residual path; `first`: nothing is cut off the pixels themselves."""

    def __init__(self, before: int, after: int, *, halves: bool, first: bool = False) -> None:
        super().__init__()
        self.halves, self.first = halves, first
        self.conv0 = normalize(nn.Conv2d(before, after, 3, padding=1))
        self.conv1 = normalize(nn.Conv2d(after, after, 3, padding=1))
        self.skip = normalize(nn.Conv2d(before, after, 1)) if halves or before != after else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.conv0(x if self.first else F.relu(x))))
        return self._smaller(y) + self._smaller(x if self.skip is None else self.skip(x))

    def _smaller(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 2) if self.halves else x


def normalize(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """The layer with its weights divided by their largest singular value."""
    nn.init.orthogonal_(layer.weight)
    register_parametrization(
        layer, "weight", SpectralNorm(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)
    )
    return layer


class SpectralNorm(nn.Module):
    """One step of the power method each time. Torch's own would round it to bf16 under autocast."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.direction: Tensor
        self.register_buffer("direction", F.normalize(torch.randn(rows), dim=0))

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):
            matrix = weight.flatten(1)
            with torch.no_grad():
                right = F.normalize(matrix.mT @ self.direction, dim=0)
                left = F.normalize(matrix @ right, dim=0)
                if self.training:
                    self.direction.copy_(left)
            return weight / (left * (matrix @ right)).sum()


WIDTHS = (1, 2, 4)  # times the width
SLOPE = 0.2


class PatchDiscriminator(nn.Module):
    """Pictures [n, c, h, w] to one number for each patch, [n, 1, h/8, w/8]: above 0 is real."""

    def __init__(self, *, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        widths = [channels, *(width * times for times in WIDTHS)]
        halving = [
            spectral_norm(nn.Conv2d(before, after, 4, stride=2, padding=1)) for before, after in pairwise(widths)
        ]
        self.halving = nn.ModuleList(halving)
        self.last = spectral_norm(nn.Conv2d(widths[-1], 1, 3, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        x = 2 * images - 1
        for conv in self.halving:
            x = F.leaky_relu(convolve(conv, x), SLOPE)
        return convolve(self.last, x)


def convolve(conv: nn.Module, x: Tensor) -> Tensor:
    """With the weight made in full precision: the products behind its norm mix their types under autocast."""
    assert isinstance(conv, nn.Conv2d)
    with torch.autocast(x.device.type, enabled=False):
        weight = conv.weight
    return F.conv2d(x, weight, conv.bias, conv.stride, conv.padding)


def critic_loss(real: Tensor, made: Tensor) -> Tensor:
    """What the discriminator lowers: the hinge loss."""
    return F.relu(1 - real).mean() + F.relu(1 + made).mean()


def generator_loss(made: Tensor) -> Tensor:
    """What the generator lowers."""
    return -made.mean()
