"""Many pictures of one size, as one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data.base import check_amount
from gradveil.data.picture import read_picture, square

SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


T = TypeVar("T")


class Source(NamedTuple):
    """A picture that is not read yet; `where` is how errors call it."""

    where: Path | str
    name: str
    open: Callable[[], Path | BytesIO]


def stacked(sources: Sequence[Source], size: int | None, channels: int, loader: str) -> np.ndarray:
    """uint8 (n, c, h, w). `size` takes the center square of each; without it all must have the size of the first."""
    if size is not None:
        check_amount(f"{loader}: size", (len(sources), channels, size, size))
    first = _fitted(sources[0], size, channels)
    check_amount(loader, (len(sources), channels, first.height, first.width))
    pixels = np.zeros((len(sources), first.height, first.width, channels), np.uint8)
    for row, source in zip(pixels, sources, strict=True):
        image = _fitted(source, size, channels)
        if image.size != first.size:
            raise ConfigError(
                f"{source.where}: {image.width}x{image.height} pixels, but {sources[0].name} has "
                f"{first.width}x{first.height}; give size= to crop and resize them all"
            )
        row[:] = np.asarray(image).reshape(row.shape)
    return pixels.transpose(0, 3, 1, 2)


def _fitted(source: Source, size: int | None, channels: int) -> Image.Image:
    image = read_picture(source.open(), channels, source.where)
    return image if size is None else square(image, size)


def in_turns(classes: Sequence[Sequence[T]]) -> list[T]:
    """The first of every class, then the second: any number of pictures from the front has all classes."""
    return [one for turn in zip_longest(*classes) for one in turn if one is not None]
