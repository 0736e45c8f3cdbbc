"""The transformations that AutoAugment and ATS build policies from, each with its ten magnitudes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradveil.transforms import color, geometry

AT_ONCE, FEWEST = 200_000, 8  # numbers in a block, and pictures of it


@dataclass(frozen=True)
class Operation:
    """A transformation of pictures [image, channel, height, width] in [0, 1], each by an amount of its own [image].

    On pictures of 256 levels the result is PIL's. `signed` means that the amount is drawn with either sign.
    """

    name: str
    function: Callable[[Tensor, Tensor], Tensor]
    amounts: tuple[float, ...]  # of the magnitudes 0 to 9
    signed: bool
    summary: str

    def apply(self, images: Tensor, amount: Tensor) -> Tensor:
        """All pictures; on a CPU in blocks, since memory for a whole batch may be fetched anew at every step."""
        size = max(FEWEST, AT_ONCE // max(1, math.prod(images.shape[1:])))
        if images.device.type != "cpu" or len(images) <= size:
            return self.function(images, amount)
        blocks = zip(images.split(size), amount.split(size), strict=True)
        return torch.cat([self.function(*block) for block in blocks])


def even(first: float, last: float) -> tuple[float, ...]:
    return tuple(np.linspace(first, last, 10).tolist())


SLOPES = even(0, 0.3)
SHIFTS = even(0, 150 / 331)  # AutoAugment's 150 pixels of its pictures of 331
FACTORS = even(0, 0.5)
ANGLES = even(0, 30)
BITS = tuple(float(round(bits)) for bits in even(8, 4))
THRESHOLDS = even(256, 0)
NONE = (0.0,) * 10

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("shearX", geometry.shear_x, SLOPES, True, "rows slide by a slope, cubic, black comes in"),
        Operation("shearY", geometry.shear_y, SLOPES, True, "columns slide by a slope, cubic, black comes in"),
        Operation("translateX", geometry.translate_x, SHIFTS, True, "a fraction of the width, black comes in"),
        Operation("translateY", geometry.translate_y, SHIFTS, True, "a fraction of the height, black comes in"),
        Operation("rotate", geometry.rotate, ANGLES, False, "degrees counterclockwise, gray comes in"),
        Operation("color", color.color, FACTORS, True, "away from gray, or toward it"),
        Operation("posterize", color.posterize, BITS, False, "keeps this many bits of a level"),
        Operation("solarize", color.solarize, THRESHOLDS, False, "inverts levels from a threshold on"),
        Operation("contrast", color.contrast, FACTORS, True, "away from the mean, or toward it"),
        Operation("sharpness", color.sharpness, FACTORS, True, "away from the blurred picture, or toward it"),
        Operation("brightness", color.brightness, FACTORS, True, "away from black, or toward it"),
        Operation("autocontrast", color.autocontrast, NONE, False, "stretches every channel to the full range"),
        Operation("equalize", color.equalize, NONE, False, "spreads the levels of every channel evenly"),
        Operation("invert", color.invert, NONE, False, "the negative"),
    )
}
