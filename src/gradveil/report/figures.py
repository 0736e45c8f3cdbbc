"""What is drawn: pictures as data URIs, and the geometry of the strip plot (the template draws it)."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, floor, inf, isfinite
from statistics import median
from typing import Literal

import numpy as np
from PIL import Image

from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import CLOSENESS, Baselines, closeness
from gradveil.experiment.record import Record

SAME = 0.5 / 255  # pixels that differ by less look the same
AXIS_END = CLOSENESS.exact or inf  # beyond it a picture is as good as exact, and the axis would be all gap
LANES = (0, -9, 9, -18, 18)  # pixels off the middle line, so that near dots do not hide each other
NEAR = 1.6  # percent of the width
MARGIN = 2.5  # percent left free at both ends, for the dots' own size
MANY = 60  # dots that can still be told apart; more are drawn as bars
BIN = 1.25  # percent of the width of a bar


def png_uri(picture: np.ndarray) -> str:
    """A channel x height x width picture in [0, 1], pixel for pixel; the page enlarges it without smoothing."""
    levels = (np.nan_to_num(picture, nan=0.5).clip(0, 1) * 255).round().astype(np.uint8)
    shown = levels[:3].transpose(1, 2, 0) if len(levels) >= 3 else levels[0]
    file = io.BytesIO()
    Image.fromarray(shown).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def looks_same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and float(np.abs(one - other).max(initial=0)) < SAME


Seen = Literal["leaked", "identified", "neither"]


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One picture: `x` in percent of the width, `y` in pixels off the middle."""

    x: float
    y: int
    seen: Seen
    label: str


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Many pictures about as close: `x` and `height` in percent, `leaked` is the part of the height that leaked."""

    x: float
    height: float
    leaked: float


@dataclass(frozen=True, kw_only=True)
class Strip:
    """One cell's row: dots, or bars and its worst picture as the only dot. All places in percent of the width."""

    cell: CellResult
    dots: Sequence[Dot]
    bars: Sequence[Bar]
    median: float | None
    floor: tuple[float, float, float] | None  # lowest, median and highest level that needs no update


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Closeness to percent of the width."""

    low: float
    high: float
    beyond: bool  # whether there are pictures past its end

    def place(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return round(MARGIN + (100 - 2 * MARGIN) * (inside - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> Iterator[tuple[float, str]]:
        span = self.high - self.low
        step = next(5 * k * 10**power for power in count() for k in (1, 2, 4) if span / (5 * k * 10**power) <= 6)
        value = step * ceil(self.low / step)
        while value <= self.high:
            text = f"{value:g}+" if self.beyond and value == self.high else f"{value:g}"
            yield self.place(value), text
            value += step


def axis_of(cells: Sequence[CellResult], baselines: Baselines) -> Axis | None:
    """One for all cells of a page, so that they can be compared; None if no trial has measured it."""
    values = [value for cell in cells for value in _levels(cell.records)]
    if not values:
        return None
    unseen = [level for cell in cells for level in _floors(cell.records, baselines)]
    low = min(5 * floor(min(values + unseen) / 5), AXIS_END - 10)
    high = min(max(5 * ceil(max(values) / 5), low + 10), AXIS_END)
    return Axis(low=low, high=high, beyond=max(values) > AXIS_END)


def strip(cell: CellResult, axis: Axis, baselines: Baselines) -> Strip:
    records = sorted((r for r in cell.records if closeness(r) is not None), key=lambda r: r.scores[CLOSENESS.name])
    levels, many = _levels(records), len(records) > MANY
    return Strip(
        cell=cell,
        dots=_dots(records[-1:] if many else records, axis, baselines),
        bars=_bars(records, axis, baselines) if many else [],
        median=axis.place(median(levels)) if levels else None,
        floor=_floor(records, axis, baselines),
    )


def _levels(records: Iterable[Record]) -> list[float]:
    return [value for record in records if (value := closeness(record)) is not None]


def _standing(record: Record, baselines: Baselines) -> Seen:
    if baselines.is_leaked(record):
        return "leaked"
    return "identified" if baselines.is_identified(record) else "neither"


def _dots(records: Sequence[Record], axis: Axis, baselines: Baselines) -> list[Dot]:
    dots: list[Dot] = []
    for record in records:
        value = record.scores[CLOSENESS.name]
        x = axis.place(value)
        crowd = sum(x - dot.x < NEAR for dot in dots[-len(LANES) + 1 :])
        guise = next((f", leaked {one.of_one}" for one in baselines.leaked_as(record)[:1] if one.of_one), "")
        label = f"{record.client}, picture {record.example}: {CLOSENESS.format(value)}{guise}"
        dots.append(Dot(x=x, y=LANES[crowd], seen=_standing(record, baselines), label=label))
    return dots


def _bars(records: Sequence[Record], axis: Axis, baselines: Baselines) -> list[Bar]:
    """How many pictures lie where, the fullest place as high as the strip allows."""
    bins = {id(record): floor(axis.place(record.scores[CLOSENESS.name]) / BIN) for record in records}
    counts = Counter(bins.values())
    leaked = Counter(bins[id(record)] for record in records if baselines.is_leaked(record))
    unit = 80 / max(counts.values())
    return [
        Bar(x=round(number * BIN, 2), height=round(count * unit, 2), leaked=round(leaked[number] * unit, 2))
        for number, count in sorted(counts.items())
    ]


def _floor(records: Sequence[Record], axis: Axis, baselines: Baselines) -> tuple[float, float, float] | None:
    levels = _floors(records, baselines)
    if not levels:
        return None
    return axis.place(min(levels)), axis.place(median(levels)), axis.place(max(levels))


def _floors(records: Iterable[Record], baselines: Baselines) -> list[float]:
    return [level for r in records if closeness(r) is not None and isfinite(level := baselines.floor(r))]
