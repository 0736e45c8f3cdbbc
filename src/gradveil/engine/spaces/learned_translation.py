"""Spaces of an attacker who knows that pictures were transformed before they were fed, but not by how much.

The numbers of the transformation (a shift, an angle, a gain) are searched along with the pictures, one set for each
picture of a batch. They are zero where nothing is done, and every part keeps them within its limits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Latent
from gradveil.engine.spaces.space import BoundPixels, Pixels, Reveal

Padding = Literal["black", "gray"]
Begin = Literal["rest", "spread"]

PLAIN = Pixels()
SPREAD = 0.8  # of the limits: they leave room beyond the shifts that they are made for
CORNERS = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """One transformation with numbers to be found: pictures [..., C, H, W] and numbers [..., number] to pictures.

    By itself it is a space too, that of pictures transformed by it alone. `pace` is the unit in which its numbers are
    searched: an optimizer of one rate for all moves them so much slower than pixels.
    """

    name: ClassVar[str]
    pace: float = 1.0

    @property
    @abstractmethod
    def reach(self) -> tuple[float, ...]:
        """How far each number may lie from zero."""

    def start(self, restart: int, example: int) -> Sequence[float]:
        return (0.0,) * len(self.reach)

    @abstractmethod
    def __call__(self, pictures: Tensor, numbers: Tensor, gray: Tensor) -> Tensor:
        """`gray` is the color that is zero in the units of the search: the mean that the model subtracts, [C, 1, 1]."""

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundTransformed:
        return Transformed(parts=(self,)).bind(seen)

    def __post_init__(self) -> None:
        if not all(0 <= reach < math.inf for reach in self.reach):
            raise ConfigError(f"limits {self.reach} are out of range, take numbers >= 0", key=self.name)
        if not 0 < self.pace < math.inf:
            raise ConfigError(f"pace = {self.pace} is out of range, take a number > 0", key=self.name)


@dataclass(frozen=True, kw_only=True)
class Shifted(Part):
    """Moved by (tx, ty), where 2 is the whole frame ([Re] ATS, 2022); bilinear between pixels.

    What comes in from outside is black, as the transformation libraries fill it, or `gray`, as the authors do.
    `spread` starts restarts all around at 0.8 of the limits, since policies draw a sign at random; a shift that is far
    from all of them is seldom found, so a limit should be about 1.25 times the shift.
    """

    name: ClassVar[str] = "shift"
    limit: tuple[float, float] = (1.1, 0.4)
    padding: Padding = "black"
    begin: Begin = "spread"

    @property
    def reach(self) -> tuple[float, ...]:
        return self.limit

    def start(self, restart: int, example: int) -> Sequence[float]:
        return around(self.limit, restart, example) if self.begin == "spread" else (0.0, 0.0)

    def __call__(self, pictures: Tensor, numbers: Tensor, gray: Tensor) -> Tensor:
        fill = outside(self.padding, gray)
        return shift_pictures(pictures - fill, numbers) + fill


@dataclass(frozen=True, kw_only=True)
class Affine(Part):
    """Turned by up to `rotation` degrees, sheared along both axes, scaled by up to `scale` or its inverse, and moved.

    The numbers are angle, two shears, the logarithm of the scale, tx and ty; all act about the middle of the frame.
    """

    name: ClassVar[str] = "affine"
    limit: tuple[float, float] = (1.1, 0.4)
    rotation: float = 30.0
    shear: float = 0.3
    scale: float = 1.0
    padding: Padding = "black"
    begin: Begin = "spread"

    @property
    def reach(self) -> tuple[float, ...]:
        grows = math.log(self.scale) if self.scale > 0 else -math.inf
        return (math.radians(self.rotation), self.shear, self.shear, grows, *self.limit)

    def start(self, restart: int, example: int) -> Sequence[float]:
        shift = around(self.limit, restart, example) if self.begin == "spread" else (0.0, 0.0)
        return (0.0, 0.0, 0.0, 0.0, *shift)

    def __call__(self, pictures: Tensor, numbers: Tensor, gray: Tensor) -> Tensor:
        fill = outside(self.padding, gray)
        flat, theta = pictures - fill, where_from(numbers, pictures.shape[-1] / pictures.shape[-2])
        flat, theta = flat.flatten(0, -4), theta.flatten(0, -3)
        grid = F.affine_grid(theta, list(flat.shape), align_corners=False)
        moved = F.grid_sample(flat, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return moved.reshape(pictures.shape) + fill


@dataclass(frozen=True, kw_only=True)
class Gain(Part):
    """brightness * (mean + contrast * (x - mean)), cut off at black and white; both factors are 1 +- `limit` at most.

    Differs from PIL in the mean: of all channels, not of the luminance. Only the box and the priors tell a picture
    from its gain: total variation prefers a flat picture under a large gain, more so as its weight grows.
    """

    name: ClassVar[str] = "gain"
    limit: tuple[float, float] = (0.5, 0.5)  # of contrast and of brightness

    @property
    def reach(self) -> tuple[float, ...]:
        return self.limit

    def __call__(self, pictures: Tensor, numbers: Tensor, gray: Tensor) -> Tensor:
        contrast, brightness = (1 + numbers)[..., None, None, None].unbind(-4)
        mean = pictures.mean((-3, -2, -1), keepdim=True)
        return (brightness * (mean + contrast * (pictures - mean))).clamp(0, 1)


@dataclass(frozen=True, kw_only=True)
class Transformed:
    """Pictures that go through the parts, from the first to the last, on their way to the model."""

    parts: tuple[Part, ...]
    pixels: Pixels = PLAIN
    reveal: Reveal = "private"  # or as fed

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ConfigError(f"parts {names}: one is there twice, take each once")

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundTransformed:
        inner = self.pixels.bind(seen)
        reaches = [inner.mean.new_tensor(part.reach) for part in self.parts]
        return BoundTransformed(self.parts, inner, reaches, self.reveal)


@dataclass(frozen=True)
class BoundTransformed:
    parts: tuple[Part, ...]
    pixels: BoundPixels
    reaches: list[Tensor]
    revealed: Reveal = "private"

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        start = dict(self.pixels.init(seed, name, restart))
        for part in self.parts:
            each = [list(part.start(restart, example)) for example in range(self.pixels.shape[0])]
            start[part.name] = self.pixels.mean.new_tensor(each) / part.pace
        return start

    def decode(self, z: Latent) -> Images:
        return self.transform(self.pixels.decode(z), z)

    def transform(self, pictures: Images, z: Latent) -> Images:
        for part in self.parts:
            pictures = part(pictures, part.pace * z[part.name], self.pixels.mean)
        return pictures

    def reveal(self, z: Latent) -> Images:
        pictures = self.pixels.reveal(z)
        return pictures if self.revealed == "private" else self.transform(pictures, z)

    def smooth(self, z: Latent) -> Images:
        return self.pixels.smooth(z)

    def constrain(self, z: Latent) -> Latent:
        inside = dict(self.pixels.constrain(z))
        for part, reach in zip(self.parts, self.reaches, strict=True):
            inside[part.name] = torch.maximum(torch.minimum(z[part.name], reach / part.pace), -reach / part.pace)
        return inside


def around(limit: tuple[float, float], restart: int, example: int) -> tuple[float, float]:
    """Where the shift of a restart starts: at rest, then all around, the pictures of a batch each at another place.

    >>> [around((1.0, 0.0), restart, 0) for restart in range(4)]
    [(0.0, 0.0), (0.8, 0.0), (-0.8, 0.0), (0.8, 0.0)]
    """
    places = starts(limit)
    return places[1 + (restart - 1 + example) % (len(places) - 1)] if restart and len(places) > 1 else (0.0, 0.0)


def starts(limit: tuple[float, float]) -> list[tuple[float, float]]:
    """Rest and the places around it, each once."""
    around = [(SPREAD * x * limit[0] + 0.0, SPREAD * y * limit[1] + 0.0) for x, y in CORNERS]
    return list(dict.fromkeys([(0.0, 0.0), *around]))


def outside(padding: Padding, gray: Tensor) -> Tensor:
    return gray if padding == "gray" else torch.zeros_like(gray)


def shift_pictures(pictures: Tensor, shift: Tensor) -> Tensor:
    """Bilinear samples at (x + tx, y + ty), zero outside: rows and columns one after the other, as two products.

    The same as torch's grid_sample, but the backward pass adds up in a fixed order on a GPU too.
    """
    height, width = pictures.shape[-2:]
    rows, columns = taps(shift[..., 1], height), taps(shift[..., 0], width)
    return rows.unsqueeze(-3) @ pictures @ columns.unsqueeze(-3).mT


def taps(shift: Tensor, size: int) -> Tensor:
    """How much of each pixel (last axis) every output pixel takes, when a line is moved by `shift` half lines."""
    place = torch.arange(size, device=shift.device).to(shift.dtype)
    wanted = (place + shift.unsqueeze(-1) * size / 2).unsqueeze(-1)
    lower = wanted.floor()
    share = wanted - lower  # its slope is 1 at whole pixels too: a hat's would be zero and the shift stay where it is
    return (1 - share) * (place == lower) + share * (place == lower + 1)


def where_from(numbers: Tensor, aspect: float) -> Tensor:
    """The 2x3 matrix from a place in the output to its place in the picture, in torch's units of half frames."""
    angle, along_x, along_y, grows, tx, ty = numbers.unbind(-1)
    cos, sin = grows.exp() * angle.cos(), grows.exp() * angle.sin()
    first = torch.stack([cos - sin * along_y, (cos * along_x - sin) / aspect, tx], -1)
    second = torch.stack([(sin + cos * along_y) * aspect, sin * along_x + cos, ty], -1)
    return torch.stack([first, second], -2)
