"""A class-conditional GAN of our own, as small as BigGAN (Brock et al., 2019) is large: what ROGS needs of one.

Residual blocks with conditional batch normalization, as in SNGAN with projection (Miyato and Koyama, 2018). Noise and
the embedding of the class are one latent, which every block sees whole, so that a search may fix the class or not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.generators.progan import widths_of

FIRST = 4  # pixels of the first block


@runtime_checkable
class Conditional(Protocol):
    """A generator whose latent is `noise` numbers and then the embedding of a class."""

    latent: tuple[int, ...]
    size: tuple[int, int, int]
    noise: int
    classes: int

    def embed(self, labels: Tensor) -> Tensor:
        """Labels [n, class], soft or one-hot, to the second part of the latent."""
        ...

    def __call__(self, z: Tensor) -> Tensor: ...


class ConditionalGan(nn.Module):
    """Noise and class to a picture; one block per doubling of the side."""

    def __init__(
        self,
        *,
        classes: int,
        width: int = 256,
        blocks: int = 3,  # 3 for 32 x 32 pixels, 4 for 64 x 64
        full: int = 3,  # sides from 4 pixels up that have the whole width; then it is halved
        noise: int = 128,
        embedding: int = 128,
        channels: int = 3,
    ) -> None:
        super().__init__()
        side, widths = FIRST * 2**blocks, widths_of(width, blocks + 1, full)
        self.noise, self.classes = noise, classes
        self.latent, self.size = (noise + embedding,), (channels, side, side)
        self.embedding = nn.Linear(classes, embedding, bias=False)
        self.seed = nn.Linear(noise + embedding, FIRST * FIRST * widths[0])
        condition = noise + embedding
        self.blocks = nn.ModuleList(Block(before, after, condition) for before, after in pairwise(widths))
        self.norm = nn.BatchNorm2d(widths[-1])
        self.paint = nn.Conv2d(widths[-1], channels, 3, padding=1)
        self.apply(_begun)
        nn.init.normal_(self.embedding.weight)  # the class counts as much as the noise from the start

    def embed(self, labels: Tensor) -> Tensor:
        return self.embedding(labels)

    def forward(self, z: Tensor) -> Tensor:
        x = self.seed(z).unflatten(1, (-1, FIRST, FIRST))
        for block in self.blocks:
            x = block(x, z)
        return (torch.tanh(self.paint(F.relu(self.norm(x))).to(z.dtype)) + 1) / 2  # autocast would round them


class Block(nn.Module):
    """Twice as large, with a residual path."""

    def __init__(self, before: int, after: int, condition: int) -> None:
        super().__init__()
        self.norm0, self.norm1 = ConditionalNorm(before, condition), ConditionalNorm(after, condition)
        self.conv0 = nn.Conv2d(before, after, 3, padding=1)
        self.conv1 = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        larger = F.interpolate(F.relu(self.norm0(x, z)), scale_factor=2.0, mode="nearest")
        y = self.conv1(F.relu(self.norm1(self.conv0(larger), z)))
        return y + F.interpolate(self.skip(x), scale_factor=2.0, mode="nearest")


class ConditionalNorm(nn.Module):
    """Batch normalization whose gain and bias come from the latent."""

    def __init__(self, width: int, condition: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.gain, self.bias = (Modulation(condition, width, bias=False) for _ in range(2))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        gain, bias = (layer(z)[:, :, None, None] for layer in (self.gain, self.bias))
        return self.norm(x) * (1 + gain) + bias


class Modulation(nn.Linear):
    """What the latent adds to a gain or a bias; little at first."""


def _begun(layer: nn.Module) -> None:
    if isinstance(layer, Modulation):
        nn.init.normal_(layer.weight, std=0.02)
    elif isinstance(layer, nn.Linear | nn.Conv2d):
        nn.init.orthogonal_(layer.weight)
