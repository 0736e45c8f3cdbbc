"""A small U-Net and its loss, for `gradveil audit --model unet.py:build --loss unet.py:dice_ce`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class UNet(nn.Module):
    """Two levels, one skip between them, a map of logits for every class."""

    def __init__(self, channels: int, classes: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.Sigmoid())
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.deep = nn.Sequential(nn.Sigmoid(), nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.Sigmoid())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.outer = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.Sigmoid())
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        near = self.inner(pictures)
        far = self.up(self.deep(self.down(near)))
        return self.head(self.outer(torch.cat([near, far], 1)))


def build(classes: int, shape: tuple[int, int, int], width: int = 12) -> nn.Module:
    """gradveil fills in the classes of the masks and the shape of the pictures."""
    return UNet(shape[0], classes, width)


def dice_ce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the pixels plus 1 - Dice, the mean over classes and pictures.

    outputs: logits, [picture, class, height, width]. targets: masks of the same shape, one-hot.
    """
    shares = outputs.softmax(1)
    both = (shares * targets).sum((2, 3))
    size = (shares + targets).sum((2, 3))
    dice = (2 * both + 1) / (size + 1)
    return F.cross_entropy(outputs, targets) + 1 - dice.mean()
