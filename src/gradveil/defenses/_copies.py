"""The transformations of OASIS (Jeter et al., 2024, equations 2 to 5): each linear in the pixels, of any leading axes.

Coordinates are centered, as equations 2 to 4 need them, and pixels that come from outside are black. Quarter turns and
flips move whole pixels. The paper does not say how the rest is sampled: it names torchvision, whose default is the
nearest pixel, and Kornia, whose default is bilinear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError

Interpolation = Literal["bilinear", "nearest"]
Copy = Callable[[Tensor, Interpolation], Tensor]


def quarter_turn(pictures: Tensor, interpolation: Interpolation, *, turns: int) -> Tensor:
    """Counterclockwise, exactly. Only a square is a square again."""
    height, width = pictures.shape[-2:]
    if height != width:
        raise ConfigError(
            f"oasis: a picture of {height} x {width} pixels has another shape after a quarter turn, "
            "leave major out of transforms or take square pictures"
        )
    return pictures.rot90(turns, (-2, -1))


def rotate(pictures: Tensor, interpolation: Interpolation, *, degrees: float) -> Tensor:
    """Counterclockwise about the center."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return _sample(pictures, ((cos, -sin), (sin, cos)), interpolation)


def shear(pictures: Tensor, interpolation: Interpolation, *, factor: float) -> Tensor:
    """Rows slide by `factor` times their distance from the middle row."""
    return _sample(pictures, ((1.0, factor), (0.0, 1.0)), interpolation)


def flip(pictures: Tensor, interpolation: Interpolation, *, axis: int) -> Tensor:
    return pictures.flip(axis)


TRANSFORMS: Mapping[str, tuple[Copy, ...]] = {
    "major": tuple(partial(quarter_turn, turns=turns) for turns in (1, 2, 3)),
    "minor": tuple(partial(rotate, degrees=degrees) for degrees in (30.0, 45.0, 60.0)),
    "shear": tuple(partial(shear, factor=factor) for factor in (0.55, 1.0, 0.9)),
    "hflip": (partial(flip, axis=-1),),
    "vflip": (partial(flip, axis=-2),),
}


def _sample(pictures: Tensor, matrix: tuple[tuple[float, float], ...], interpolation: Interpolation) -> Tensor:
    """Each pixel (x, y) from the place `matrix` (x, y)."""
    (xx, xy), (yx, yy) = matrix
    height, width = pictures.shape[-2:]
    y, x = (torch.arange(n, device=pictures.device, dtype=torch.float64) - (n - 1) / 2 for n in (height, width))
    column = xx * x + xy * y.unsqueeze(-1) + (width - 1) / 2
    row = yx * x + yy * y.unsqueeze(-1) + (height - 1) / 2
    if interpolation == "nearest":
        return _take(pictures, row.round(), column.round())
    return sum((weight.to(pictures) * _take(pictures, *at) for *at, weight in _corners(row, column)), start=0.0)  # type: ignore[return-value]


def _corners(row: Tensor, column: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The four pixels around a place, and how much each counts."""
    top, left = row.floor(), column.floor()
    down, right = row - top, column - left
    yield top, left, (1 - down) * (1 - right)
    yield top, left + 1, (1 - down) * right
    yield top + 1, left, down * (1 - right)
    yield top + 1, left + 1, down * right


def _take(pictures: Tensor, row: Tensor, column: Tensor) -> Tensor:
    height, width = pictures.shape[-2:]
    near_row, near_column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    inside = ((row == near_row) & (column == near_column)).to(pictures.dtype)
    source = (near_row * width + near_column).long().flatten()
    return pictures.flatten(-2).index_select(-1, source).unflatten(-1, (height, width)) * inside
