"""Picture files of unknown origin: everything is checked before the pixels are decoded. One, or many of one size.

The content decides about the format, not the name of the file. Palettes, CMYK and transparency become RGB or gray as
Pillow converts them (transparency is dropped); what would lose more is refused: several pictures in a file, and more
than 8 bits per channel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from gradveil.core.errors import ConfigError
from gradveil.data.base import check_amount

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
MAX_PIXELS = 25_000_000
MODES = {1: "L", 3: "RGB"}
BLACK, WHITE = 0, 255
LOST = 128  # libjpeg's gray for blocks that are not there
BLOCK = 8


def read_picture(source: Path | BytesIO, channels: int, where: Path | str) -> Image.Image:
    """One picture, upright, in 8 bits per channel; `where` is how errors call it."""
    with _name_faults(where):
        image = _decode(source, where, over=BLACK)
        _check_whole(image, source, where)
        return ImageOps.exif_transpose(image).convert(MODES[channels])


def _decode(source: Path | BytesIO, where: Path | str, over: int) -> Image.Image:
    with Image.open(source, formats=FORMATS) as image:
        _check_header(image, where)
        bands = len(image.getbands())
        image.im = Image.new(image.mode, image.size, over if bands == 1 else (over,) * bands).im
        image.load()
        return image


def _check_header(image: ImageFile.ImageFile, where: Path | str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"{where}: {width}x{height} pixels, the limit is {MAX_PIXELS:,}, make the picture smaller")
    if getattr(image, "is_animated", False):
        raise ConfigError(f"{where}: holds more than one picture, save each in a file of its own")
    stored = str([tile[3] for tile in image.tile])  # 16 bits of color are "RGB;16B" here and plain "RGB" as a mode
    if image.mode.startswith(("I", "F")) or ";16" in stored:
        # Pillow would clip or cut these to 0..255 without a word, and only the owner knows the range that was meant
        raise ConfigError(f"{where}: has more than 8 bits per channel ({image.mode}), scale it to 8 bits first")


def _check_whole(image: Image.Image, source: Path | BytesIO, where: Path | str) -> None:
    """Rows that a file promises but does not hold stay as the canvas was: black here, white in a second decoding."""
    end = np.asarray(image)[-BLOCK:, -BLOCK:]
    cut = image.format == "JPEG" and bool((end == LOST).all())
    if not cut and not end[-2:, -1].all():
        cut = image.tobytes() != _decode(source, where, over=WHITE).tobytes()
    if cut:
        raise ConfigError(f"{where}: damaged or truncated picture (its end is blank), replace it or save it as PNG")


@contextmanager
def _name_faults(where: Path | str) -> Iterator[None]:
    """What Pillow raises, as one line that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on odd metadata concern nobody
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except ConfigError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ConfigError(f"{where}: more pixels than the limit of {MAX_PIXELS:,}, make the picture smaller") from error
    except UnidentifiedImageError as error:
        known = ", ".join(FORMATS)
        raise ConfigError(f"{where}: not a picture in a known format ({known}), convert or remove it") from error
    except Exception as error:  # the decoders raise nearly anything on bytes made to confuse them
        raise ConfigError(f"{where}: damaged or truncated picture ({error}), replace or remove it") from error


def square(image: Image.Image, size: int) -> Image.Image:
    """The center square, resized with Lanczos."""
    side = min(image.size)
    left, upper = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, upper, left + side, upper + side)).resize((size, size), Image.Resampling.LANCZOS)


SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


T = TypeVar("T")


class Source(NamedTuple):
    """A picture that is not read yet; `where` is how errors call it."""

    where: Path | str
    name: str
    open: Callable[[], Path | BytesIO]


def stack_pictures(sources: Sequence[Source], size: int | None, channels: int, loader: str) -> np.ndarray:
    """uint8 (n, c, h, w). `size` takes the center square of each; without it all must have the size of the first."""
    if size is not None:
        check_amount(f"{loader}: size", (len(sources), channels, size, size))
    first = _read_fitting(sources[0], size, channels)
    check_amount(loader, (len(sources), channels, first.height, first.width))
    pixels = np.zeros((len(sources), first.height, first.width, channels), np.uint8)
    for row, source in zip(pixels, sources, strict=True):
        image = _read_fitting(source, size, channels)
        if image.size != first.size:
            raise ConfigError(
                f"{source.where}: {image.width}x{image.height} pixels, but {sources[0].name} has "
                f"{first.width}x{first.height}; give size= to crop and resize them all"
            )
        row[:] = np.asarray(image).reshape(row.shape)
    return pixels.transpose(0, 3, 1, 2)


def _read_fitting(source: Source, size: int | None, channels: int) -> Image.Image:
    image = read_picture(source.open(), channels, source.where)
    return image if size is None else square(image, size)


def in_turns(classes: Sequence[Sequence[T]]) -> list[T]:
    """The first of every class, then the second: any number of pictures from the front has all classes."""
    return [one for turn in zip_longest(*classes) for one in turn if one is not None]
