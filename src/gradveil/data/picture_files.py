"""Picture files of unknown origin: everything is checked before the pixels are decoded. One, or many of one size.

The content decides about the format, not the name of the file. Palettes, CMYK and transparency become RGB or gray as
Pillow converts them (transparency is dropped). PNG and TIFF of 16 bits per channel keep all of them; what would lose
more is refused: several pictures in a file, 32 bits and floating point. DICOM and NIfTI: see `medical.py`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.archive import check_size
from gradveil.data.base import check_amount
from gradveil.data.dicom import read_dicom
from gradveil.data.fit import MAX_PIXELS, Fit
from gradveil.data.levels import Range, fit_levels, scale
from gradveil.data.medical import DICOM, MEDICAL, suffix_of
from gradveil.data.nifti import read_nifti
from gradveil.data.sixteen_bits import LIMITS, is_sixteen, join_bytes, low_bytes

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
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


def read_stored(source: Path | BytesIO, where: Path | str) -> Image.Image:
    """One picture upright, its gray values or places in the palette as they are stored."""
    with _name_faults(where):
        image = _decode(source, where, over=BLACK)
        return ImageOps.exif_transpose(image)


def read_sixteen(source: Path | BytesIO, where: Path | str) -> np.ndarray | None:
    """uint16 [row, column, channel] of a picture of 16 bits, upright; None of any other."""
    with _name_faults(where):
        with Image.open(source, formats=FORMATS) as image:
            if not is_sixteen(image):
                return None
        image = _decode(source, where, over=BLACK, sixteen=True)
        _check_whole(image, source, where, sixteen=True)
        low = partial(_decode, source, where, over=BLACK, sixteen=True, low=True)
        return join_bytes(ImageOps.exif_transpose(image), lambda: ImageOps.exif_transpose(low()))


def _decode(
    source: Path | BytesIO, where: Path | str, over: int, sixteen: bool = False, low: bool = False
) -> Image.Image:
    """With what is not there as `over`; of 16 bits a color the upper byte, or the lower one."""
    with Image.open(source, formats=FORMATS) as image:
        _check_header(image, where, sixteen)
        if low:
            low_bytes(image)
        bands = len(image.getbands())
        size = getattr(image, "_tile_size", image.size)  # of a TIFF that is turned upright as it is loaded
        image.im = Image.new(image.mode, size, over if bands == 1 else (over,) * bands).im
        image.load()
        return image


def _check_header(image: ImageFile.ImageFile, where: Path | str, sixteen: bool) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"{where}: {width}x{height} pixels, the limit is {MAX_PIXELS:,}, make the picture smaller")
    if getattr(image, "is_animated", False):
        raise ConfigError(f"{where}: holds more than one picture, save each in a file of its own")
    stored = str([tile[3] for tile in image.tile])
    deep = image.mode.startswith(("I", "F")) or ";16" in stored
    if deep and not (sixteen and is_sixteen(image)):
        # Pillow would clip or cut these to 0..255 without a word, and only the owner knows the range that was meant
        raise ConfigError(f"{where}: has more than 8 bits per channel ({image.mode}), scale it to 8 or 16 bits first")


def _check_whole(image: Image.Image, source: Path | BytesIO, where: Path | str, sixteen: bool = False) -> None:
    """Rows that a file promises but does not hold stay as the canvas was: black here, white in a second decoding."""
    end = np.asarray(image)[-BLOCK:, -BLOCK:]
    cut = image.format == "JPEG" and bool((end == LOST).all())
    if not cut and not end[-2:, -1].all():
        cut = image.tobytes() != _decode(source, where, over=WHITE, sixteen=sixteen).tobytes()
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


SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp", *MEDICAL)


T = TypeVar("T")


class Source(NamedTuple):
    """A picture that is not read yet; `where` is how errors call it."""

    where: Path | str
    name: str
    open: Callable[[], Path | BytesIO]


class Reading(NamedTuple):
    """How pictures are read: their size, their channels, and of numbers with more than 8 bits what is 0 and 1."""

    fit: Fit
    channels: int = 3
    limits: Range | None = None
    plane: int | None = None  # of a volume


def stack_pictures(sources: Sequence[Source], how: Reading, loader: str) -> Tensor:
    """[n, c, h, w] in [0, 1]. Without a size all must have the size of the first."""
    how.fit.check(loader)
    if how.fit.size is not None:
        check_amount(f"{loader}: size", (len(sources), how.channels, how.fit.size, how.fit.size))
    first = read_pixels(sources[0], how)
    check_amount(loader, (len(sources), *first.shape))
    pictures = torch.zeros(len(sources), *first.shape)
    for row, source in enumerate(sources):
        pixels = read_pixels(source, how)
        if pixels.shape != first.shape:
            sizes = [f"{shape[2]}x{shape[1]}" for shape in (pixels.shape, first.shape)]
            raise ConfigError(
                f"{source.where}: {sizes[0]} pixels, but {sources[0].name} has {sizes[1]}; "
                "give size= to crop and resize them all"
            )
        pictures[row] = torch.from_numpy(pixels)
    return pictures


def read_pixels(source: Source, how: Reading) -> np.ndarray:
    """float32 [channel, row, column] in [0, 1]."""
    suffix, opened = suffix_of(source.name), source.open()
    if suffix in MEDICAL:
        read = read_dicom if suffix in DICOM else read_nifti
        levels = read(_bytes(opened, source.where), source.where, how.plane, how.limits)
        return fit_levels(levels, how.fit, how.channels, source.where)
    sixteen = read_sixteen(opened, source.where)
    if sixteen is not None:
        return fit_levels(scale(sixteen, how.limits or LIMITS), how.fit, how.channels, source.where)
    image = how.fit(read_picture(opened, how.channels, source.where), source.where)
    pixels = np.asarray(image, np.float32).reshape(image.height, image.width, how.channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)) / np.float32(255)


def _bytes(opened: Path | BytesIO, where: Path | str) -> bytes:
    if isinstance(opened, BytesIO):
        return opened.getvalue()
    check_size(str(where), opened.stat().st_size)
    return opened.read_bytes()


def take(classes: Sequence[Sequence[T]], limit: int | None) -> list[T]:
    """The first pictures of every class, of each as large a share as it has in the data, in turns."""
    ranked = [((turn + 0.5) / len(own), which) for which, own in enumerate(classes) for turn in range(len(own))]
    counts = Counter(which for _, which in sorted(ranked)[:limit])
    return in_turns([own[: counts[which]] for which, own in enumerate(classes)])


def in_turns(classes: Sequence[Sequence[T]]) -> list[T]:
    """The first of every class, then the second: any number of pictures from the front has all classes."""
    return [one for turn in zip_longest(*classes) for one in turn if one is not None]
