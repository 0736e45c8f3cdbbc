"""ProGAN (Karras et al., Progressive Growing of GANs, 2018): the generator alone, grown, with its weights folded in.

Weights that were scaled at run time (equalized learning rate) are stored scaled, and pictures come out in [0, 1].
 `papers/rog/progan_convert.py` makes a file of the published 128x128 faces.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

SLOPE, EPSILON = 0.2, 1e-8
FIRST = 4  # pixels of the first block


class ProGan(nn.Module):
    """A latent on the sphere to a picture, twice as large after every block."""

    def __init__(
        self, *, latent: int = 512, width: int = 512, blocks: int = 6, full: int = 4, channels: int = 3
    ) -> None:
        super().__init__()
        side, widths = FIRST * 2 ** (blocks - 1), widths_of(width, blocks, full)
        self.latent, self.size = (latent,), (channels, side, side)
        pairs = zip((latent, *widths), widths, strict=False)
        self.blocks = nn.ModuleList(
            Block(before, after, first=place == 0) for place, (before, after) in enumerate(pairs)
        )
        self.paint = nn.Conv2d(widths[-1], channels, 1)

    def forward(self, z: Tensor) -> Tensor:
        x = pixel_norm(z)[:, :, None, None]
        for block in self.blocks:
            x = block(x)
        return self.paint(x).clamp(0, 1)


class Block(nn.Module):
    """Two convolutions, each with a leaky ReLU and pixels of unit length; the first block opens one pixel to 4 x 4."""

    def __init__(self, before: int, width: int, *, first: bool) -> None:
        super().__init__()
        self.first = first
        self.conv0 = (
            nn.Conv2d(before, width, FIRST, padding=FIRST - 1) if first else nn.Conv2d(before, width, 3, padding=1)
        )
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.first:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        for conv in (self.conv0, self.conv1):
            x = pixel_norm(F.leaky_relu(conv(x), SLOPE))
        return x


def pixel_norm(x: Tensor) -> Tensor:
    """Every pixel's channels at unit mean square."""
    return x * (x.square().mean(1, keepdim=True) + EPSILON).rsqrt()


def widths_of(width: int, blocks: int, full: int) -> tuple[int, ...]:
    """Channels of each block: `width` in the first `full` of them, then halved every time.

    >>> widths_of(512, 6, 4)
    (512, 512, 512, 512, 256, 128)
    """
    return tuple(max(1, width // 2 ** max(0, place + 1 - full)) for place in range(blocks))
