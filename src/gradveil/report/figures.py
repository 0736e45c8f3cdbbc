"""What is drawn: pictures as data URIs, and the geometry of the strip plot (the template draws it)."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
from PIL import Image

from gradveil.report.cells import Cell

SAME = 0.5 / 255  # pixels that differ by less look the same
AXIS_END = 60.0  # dB; beyond it a picture is as good as exact, and the axis would be all gap
LANES = (0, -9, 9, -18, 18)  # pixels off the middle line, so that near dots do not hide each other
NEAR = 1.6  # percent of the width
MARGIN = 2.5  # percent left free at both ends, for the dots' own size


def png_uri(picture: np.ndarray) -> str:
    """A channel x height x width picture in [0, 1], pixel for pixel; the page enlarges it without smoothing."""
    levels = (np.nan_to_num(picture, nan=0.5).clip(0, 1) * 255).round().astype(np.uint8)
    shown = levels[:3].transpose(1, 2, 0) if len(levels) >= 3 else levels[0]
    file = io.BytesIO()
    Image.fromarray(shown).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def looks_same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and float(np.abs(one - other).max(initial=0)) < SAME


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One picture: `x` in percent of the width, `y` in pixels off the middle."""

    x: float
    y: int
    identified: bool
    label: str


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One cell's row."""

    cell: Cell
    dots: Sequence[Dot]
    median: float | None  # percent of the width


@dataclass(frozen=True, kw_only=True)
class StripPlot:
    """PSNR of every picture of every cell on one axis."""

    ticks: Sequence[tuple[float, str]]
    strips: Sequence[Strip]


def strip_plot(cells: Sequence[Cell]) -> StripPlot | None:
    """None if no trial has a PSNR."""
    values = [r.scores["psnr"] for cell in cells for r in cell.scored if "psnr" in r.scores]
    if not values:
        return None
    low = min(5 * floor(min(values) / 5), AXIS_END - 10)
    high = min(max(5 * ceil(max(values) / 5), low + 10), AXIS_END)
    return StripPlot(
        ticks=list(_ticks(low, high, beyond=max(values) > AXIS_END)),
        strips=[_strip(cell, low, high) for cell in cells],
    )


def _place(value: float, low: float, high: float) -> float:
    return round(MARGIN + (100 - 2 * MARGIN) * (min(value, high) - low) / (high - low), 2)


def _ticks(low: float, high: float, beyond: bool) -> Iterator[tuple[float, str]]:
    step = next(step for step in (5, 10, 20, 50, 100) if (high - low) / step <= 6 or step == 100)
    value = step * ceil(low / step)
    while value <= high:
        text = f"{value:g}+" if beyond and value == high else f"{value:g}"
        yield _place(value, low, high), text
        value += step


def _strip(cell: Cell, low: float, high: float) -> Strip:
    dots: list[Dot] = []
    for record in reversed([r for r in cell.scored if "psnr" in r.scores]):
        value = record.scores["psnr"]
        x = _place(value, low, high)
        crowd = sum(x - dot.x < NEAR for dot in dots[-len(LANES) + 1 :])
        label = f"{record.client}, picture {record.example}: {value:.1f} dB"
        hit = record.scores.get("retrieval", 0) > 0
        dots.append(Dot(x=x, y=LANES[crowd], identified=hit, label=label))
    middle = cell.spread("psnr")
    return Strip(cell=cell, dots=dots, median=_place(middle.median, low, high) if middle else None)
