"""The opponent of the conditional GAN: residual, spectrally normalized (Miyato et al., 2018), classes by projection
(Miyato and Koyama, 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
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
