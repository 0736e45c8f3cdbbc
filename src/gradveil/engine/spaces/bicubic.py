"""Pictures made of fewer numbers: a small picture is searched for and enlarged (ROG, Yue et al., 2023, section 4.2).

With a sixteenth of the unknowns the match says more about each, and neighbors move together. Enlarging is bicubic, as
torch's `interpolate` does it, but as two products: the backward pass then adds up in a fixed order on a GPU too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Latent
from gradveil.engine.spaces.space import BoundPixels, Pixels, Start


@dataclass(frozen=True, kw_only=True)
class Bicubic:
    """Pictures `factor` times smaller, rounded up, enlarged to the size of the data.

    `encoded` starts from a full picture made small, as the paper writes it (noise then has less contrast); otherwise
    the small picture itself is drawn, as the code does. After a gray start, further restarts are drawn. `normalized`
    searches in the units of the model's first layer.
    """

    factor: int = 4
    start: Start = "uniform"
    encoded: bool = False
    normalized: bool = False
    boxed: bool = False

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise ConfigError(f"factor = {self.factor} is out of range, take 1 or more (1: the pixels)", key="bicubic")

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundBicubic:
        like = next(iter(seen.update.values()))
        large, small = seen.shape[1:], tuple(math.ceil(side / self.factor) for side in seen.shape[1:])
        pixels = Pixels(start=self.start, normalized=self.normalized, boxed=self.boxed).bind(seen)
        rows, columns = (resizing(*sides).to(like) for sides in zip(small, large, strict=True))
        return BoundBicubic(self, pixels, rows, columns)


@dataclass(frozen=True)
class BoundBicubic:
    space: Bicubic
    pixels: BoundPixels  # of full size: for its units, its box and its start
    rows: Tensor  # [height, small height]
    columns: Tensor

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        small = (self.rows.shape[1], self.columns.shape[1])
        if self.space.encoded:
            return {"pixels": self.shrink(self.pixels.init(seed, name, restart)["pixels"])}
        drawn = "uniform" if restart and self.space.start == "gray" else self.space.start
        inner = replace(self.pixels, shape=(*self.pixels.shape[:-2], *small))
        return replace(inner, space=replace(inner.space, start=drawn)).init(seed, name, restart)

    def encode(self, images: Images) -> Latent:
        """The small pictures that are nearest to these."""
        return self.pixels.encode(self.shrink(images))

    def shrink(self, images: Tensor) -> Tensor:
        rows, columns = (resizing(*side.shape).to(images) for side in (self.rows, self.columns))
        return rows @ images @ columns.mT

    def decode(self, z: Latent) -> Images:
        return self.rows @ self.pixels.decode(z) @ self.columns.mT

    def reveal(self, z: Latent) -> Images:
        """Without a clamp: what is done at the end may want to know how far it went."""
        return self.decode(z)

    def smooth(self, z: Latent) -> Images:
        return self.rows @ z["pixels"] @ self.columns.mT

    def constrain(self, z: Latent) -> Latent:
        return self.pixels.constrain(z)


def resizing(size: int, wanted: int) -> Tensor:
    """How much of each number of a line (last axis) every number of the resized line takes: [wanted, size].

    >>> resizing(2, 2)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    lines = torch.eye(size, dtype=torch.float64).view(1, size, size, 1)
    resized = F.interpolate(lines, size=(wanted, 1), mode="bicubic", align_corners=False)
    return resized[0, :, :, 0].mT.contiguous()
