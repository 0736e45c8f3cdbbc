"""The autoencoder of ROG (Yue et al., USENIX Security 2023, section 4.2): pictures as 512, 2048 or 8192 numbers.

The paper gives these three sizes for pictures of 128 x 128 and nothing of the networks. Here the code is a small
picture of 8 channels, so that 512 are 8 x 8, 2048 are 16 x 16 and 8192 are 32 x 32; residual blocks with group
normalization on both sides; codes are scaled to mean 0 and standard deviation 1, where a search can start.
"""

from __future__ import annotations

from math import isqrt
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.generators.stored import load_network

KIND = "autoencoder"
CHANNELS = 8  # of the code
WIDEST = 4  # times the width of the outermost level
GROUP = 8  # channels that are normalized together


class Residual(nn.Module):
    """Two convolutions beside the identity, which is all there is at first: short training has to do."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(channels // GROUP, channels), nn.GroupNorm(channels // GROUP, channels)
        self.inner, self.outer = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.outer.weight)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.inner(F.silu(self.first(x)))
        return x + self.outer(F.silu(self.second(inside)))


class Halved(nn.Module):
    """Half as many pixels each way."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(entering, leaving, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class Doubled(nn.Module):
    """Every pixel four times, then a convolution: a transposed one would leave a checkerboard."""

    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(entering, leaving, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def side_of(latent: int, size: int) -> int:
    """How many pixels the code has each way; ConfigError if there is no such code for pictures of this size."""
    side = isqrt(latent // CHANNELS)
    factor = size // side if side else 0
    if side < 1 or CHANNELS * side**2 != latent or factor * side != size or factor & (factor - 1):
        raise ConfigError(
            f"autoencoder: a latent of {latent} does not fit pictures of {size} pixels, take 512, 2048 or 8192 "
            f"({CHANNELS} channels whose side is {size} divided by a power of 2)"
        )
    return side


class Autoencoder(nn.Module):
    """`encode` and `decode`; called, it decodes. No draws and nothing in place, so `torch.func` goes through."""

    latent: tuple[int, int, int]
    size: tuple[int, int, int]
    code_mean: Tensor
    code_std: Tensor

    def __init__(self, *, latent: int = 2048, size: int = 128, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        if width < GROUP or width % GROUP or channels < 1:
            raise ConfigError(f"autoencoder: a width of {width} for {channels} channels, take a multiple of {GROUP}")
        side = side_of(latent, size)
        self.latent, self.size, self.file = (CHANNELS, side, side), (channels, size, size), ""
        levels = (size // side).bit_length() - 1
        packed = 2 if levels else 1  # the outermost level is only packed: full resolution costs most and needs least
        widths = [min(2**level, WIDEST) * width for level in range(max(levels, 1))]
        self.encoder = _encoder(channels * packed**2, packed, widths)
        self.decoder = _decoder(channels * packed**2, packed, widths)
        self.register_buffer("code_mean", torch.zeros(CHANNELS, 1, 1))
        self.register_buffer("code_std", torch.ones(CHANNELS, 1, 1))

    def encode(self, images: Tensor) -> Tensor:
        """Pictures [n, c, h, w] in [0, 1] to codes [n, *latent]."""
        return (self.encoder(2 * images - 1) - self.code_mean) / self.code_std

    def decode(self, z: Tensor) -> Tensor:
        """Codes [n, *latent] to pictures in [0, 1]."""
        return torch.sigmoid(self.decoder(z * self.code_std + self.code_mean))

    def forward(self, z: Tensor) -> Tensor:
        return self.decode(z)

    def extra_repr(self) -> str:
        return f"latent={self.latent}, size={self.size}, file={self.file!r}"


def _encoder(entering: int, packed: int, widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.PixelUnshuffle(packed), nn.Conv2d(entering, widths[0], 3, padding=1)]
    for before, width in zip([None, *widths], widths, strict=False):
        layers += [] if before is None else [Halved(before, width)]
        layers += [Residual(width)]
    # without a normalization at the end: it would take away how bright a picture is
    return nn.Sequential(*layers, Residual(widths[-1]), nn.Conv2d(widths[-1], CHANNELS, 3, padding=1))


def _decoder(leaving: int, packed: int, widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(CHANNELS, widths[-1], 3, padding=1), Residual(widths[-1])]
    for width, after in zip(widths[::-1], [*widths[-2::-1], None], strict=True):
        layers += [Residual(width), Residual(width)]
        layers += [] if after is None else [Doubled(width, after)]
    return nn.Sequential(*layers, nn.Conv2d(widths[0], leaving, 3, padding=1), nn.PixelShuffle(packed))


def load_autoencoder(path: str | Path) -> Autoencoder:
    """From the file that `gradveil train-generator autoencoder` wrote: frozen, on the CPU, in float32."""
    return load_network(path, KIND, Autoencoder)
