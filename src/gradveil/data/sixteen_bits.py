"""PNG and TIFF pictures of 16 bits per channel, all of them: Pillow itself keeps the upper 8 of a color."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageFile

LIMITS = (0.0, 65535.0)
OTHER_BYTE = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
COLOR = ("RGB", "RGBA", "RGBX")


def is_sixteen(image: ImageFile.ImageFile) -> bool:
    """By what is stored: a color of 16 bits is "RGB;16B" there and plain "RGB" as a mode."""
    stored = _stored(image)
    odd = ";16S" in stored or "LA;16" in stored  # signed, or gray with transparency: Pillow has no lower bytes of it
    return ";16" in stored and not odd and image.mode in ("I;16", "I;16B", "I;16L", "I", *COLOR)


def _stored(image: ImageFile.ImageFile) -> str:
    return str([tile[3] for tile in image.tile])


def low_bytes(image: ImageFile.ImageFile) -> None:
    """Have the lower byte of each channel decoded instead of the upper one: read in the other order of bytes."""
    image.tile = [type(tile)(*tile[:3], _swapped(tile[3])) for tile in image.tile]


def _swapped(args: Any) -> Any:
    if isinstance(args, tuple):
        return (_swapped(args[0]), *args[1:])
    mode, _, order = str(args).partition(";")
    return f"{mode};{OTHER_BYTE[order]}"


def join_bytes(image: Image.Image, decode_low: Callable[[], Image.Image]) -> np.ndarray:
    """uint16 [row, column, channel], without transparency."""
    if image.mode not in COLOR:
        return np.asarray(image).astype(np.uint16)[..., None]
    high, low = (np.asarray(one)[..., :3].astype(np.uint16) for one in (image, decode_low()))
    return high << 8 | low
