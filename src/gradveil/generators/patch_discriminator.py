"""A PatchGAN discriminator (Isola et al., CVPR 2017): every patch of a picture is judged real or made.

Widths, spectral normalization (Miyato et al., ICLR 2018) and slopes are those of ROG's released network.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

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
