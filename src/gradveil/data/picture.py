"""Picture files of unknown origin: everything is checked before the pixels are decoded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from gradveil.errors import ConfigError

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
MAX_PIXELS = 25_000_000
MODES = {1: "L", 3: "RGB"}


def read_picture(source: Path | BytesIO, channels: int, where: Path | str) -> Image.Image:
    """One picture, upright, in 8 bits per channel; `where` is how errors call it."""
    with _told(where), Image.open(source, formats=FORMATS) as image:
        _check_header(image, where)
        return ImageOps.exif_transpose(image).convert(MODES[channels])


def _check_header(image: Image.Image, where: Path | str) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ConfigError(f"{where}: {width}x{height} pixels, the limit is {MAX_PIXELS:,}, make the picture smaller")
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise ConfigError(f"{where}: holds {frames} pictures, save each in a file of its own")
    if image.mode.startswith(("I", "F")):
        # Pillow would clip these to 0..255 without a word, and only the owner knows the range that was meant
        raise ConfigError(f"{where}: has more than 8 bits per channel ({image.mode}), scale it to 8 bits first")


@contextmanager
def _told(where: Path | str) -> Iterator[None]:
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
