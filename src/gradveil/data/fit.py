"""How a picture of any size becomes a square: the filter by name, and what is cropped when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from gradveil.core.errors import ConfigError

Resize = Literal["lanczos", "bicubic", "bilinear", "box", "nearest"]
Crop = Literal["center", "none", "resize-first"]
FILTERS = {
    "lanczos": Image.Resampling.LANCZOS,
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "box": Image.Resampling.BOX,
    "nearest": Image.Resampling.NEAREST,
}
MAX_PIXELS = 25_000_000


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What is done to every picture of a set.

    crop: `center` crops the center square and resizes it, `none` resizes the whole picture to a square, and
        `resize-first` resizes until the shorter side has `short_side` pixels and crops the center of that
        (torchvision's Resize and CenterCrop).
    """

    size: int | None = None
    resize: Resize = "lanczos"
    crop: Crop = "center"
    short_side: int | None = None

    def check(self, loader: str) -> None:
        if self.short_side is None:
            return
        if self.crop != "resize-first":
            raise ConfigError(f"{loader}: short_side is of crop=resize-first, which is not set; leave it out or set it")
        if self.size is None or self.short_side < self.size:
            raise ConfigError(f"{loader}: short_side is {self.short_side}, it must be at least size ({self.size})")

    def __call__(self, image: Image.Image, where: Path | str) -> Image.Image:
        if self.size is None:
            return image
        square, filter = (self.size, self.size), FILTERS[self.resize]
        if self.crop == "none":
            return image.resize(square, filter)
        if self.crop == "center":
            side = min(image.size)
            return _crop(image, side, ((length - side) // 2 for length in image.size)).resize(square, filter)
        image = _shorten(image, self.short_side or self.size, filter, where)
        return _crop(image, self.size, (round((length - self.size) / 2) for length in image.size))


def _crop(image: Image.Image, side: int, corner: Iterable[int]) -> Image.Image:
    left, upper = corner
    return image.crop((left, upper, left + side, upper + side))


def _shorten(image: Image.Image, short: int, filter: Image.Resampling, where: Path | str) -> Image.Image:
    """Resized as a whole, until the shorter side is so long."""
    width, height = image.size
    size = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    if size[0] * size[1] > MAX_PIXELS:
        raise ConfigError(f"{where}: would have {size[0]}x{size[1]} pixels, the limit is {MAX_PIXELS:,}, crop it first")
    return image.resize(size, filter)
