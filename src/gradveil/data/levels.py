"""Numbers of more than 8 bits to pixels in [0, 1]."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data.fit import Fit

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # as Pillow turns color into gray
Range = tuple[float, float]  # what becomes 0 and 1


def parse_range(text: str | None, loader: str) -> Range | None:
    """`0,4095`: the numbers that become black and white; None where nobody says it."""
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 0.0, 0.0
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"{loader}: range is {text[:60]!r}, expected the numbers of black and white as in 0,4095")
    return low, high


def scale(values: np.ndarray, limits: Range) -> np.ndarray:
    """float32 in [0, 1]; what lies outside of the limits is cut."""
    low, high = limits
    return np.clip((values.astype(np.float64) - low) / (high - low), 0, 1).astype(np.float32)


def fit_levels(pixels: np.ndarray, how: Fit, channels: int, where: Path | str) -> np.ndarray:
    """[row, column, channel] in [0, 1] to [channel, row, column] of the size and number of channels asked for."""
    planes = pixels.transpose(2, 0, 1)
    if channels == 1 and len(planes) == 3:
        planes = np.tensordot(LUMA, planes, 1)[None]
    fitted = [np.asarray(how(Image.fromarray(np.ascontiguousarray(plane, np.float32)), where)) for plane in planes]
    found = np.clip(np.stack(fitted), 0, 1)  # Lanczos and bicubic overshoot at edges
    return np.repeat(found, channels // len(found), 0)
