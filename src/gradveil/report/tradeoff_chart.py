"""Accuracy against leakage as SVG text (ROG, figure 9a): one mark per defense and strength, intervals both ways.

Less leakage is to the right whatever the measure, so that one wants to be in the upper right corner, as in the figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from gradveil.report.charts import (
    CARD,
    INK,
    LEFT,
    LINE,
    PALETTE,
    RIGHT,
    SOFT,
    TOP,
    document,
    page_color,
    span,
    text,
    ticks,
)

Shape = Literal["square", "circle", "diamond", "triangle"]
ACCENT = page_color("accent", "#1b5e85")
BOTTOM, SIZE, LETTER, TALL = 56, 5.5, 6.8, 13.0  # the last two: width and height of a letter
BOLD = 1.14  # times as wide
AROUND = ((9, -9, "start"), (9, 17, "start"), (-9, -9, "end"), (-9, 17, "end"), (13, 4, "start"), (-13, 4, "end"),
          (0, -12, "middle"), (0, 22, "middle"), (10, 30, "start"), (-10, 30, "end"), (10, -22, "start"),
          (-10, -22, "end"))  # fmt: skip
Box = tuple[float, float, float, float]  # left, upper, right, lower


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point: where it lies and how surely. `believed` marks are filled, `ahead` ones are on the front."""

    label: str
    group: str  # marks of one group have one color
    shape: Shape
    leakage: float
    accuracy: float
    across: tuple[float, float] | None = None  # low and high end of the leakage
    up: tuple[float, float] | None = None  # of the accuracy
    believed: bool = True
    ahead: bool = False
    tooltip: str = ""


@dataclass(frozen=True, kw_only=True)
class TradeoffChart:
    """`upward`: whether a higher value of the measure leaks more. `noise` are labels that a dashed line joins.

    `unnamed` marks have no label beside them, for want of room; they still say who they are when pointed at.
    """

    title: str
    x: str
    marks: Sequence[Mark]
    upward: bool = True
    noise: Sequence[str] = ()
    unnamed: Sequence[str] = ()
    y: str = "accuracy"
    width: int = 960
    height: int = 560

    def svg(self) -> str:
        if not self.marks:
            return document(self.width, 90, [text(LEFT, TOP, f"{self.title}: no point is finished")])
        plane = self.plane()
        body = [*self.axes(plane), *self.noise_line(plane), *self.front(plane)]
        for mark in self.marks:
            body += plane.doubt(mark, self.color(mark))
        body += [plane.draw(mark, self.color(mark)) for mark in self.marks]
        return document(self.width, self.height, body + list(plane.labels(self.marks, self.unnamed)))

    def plane(self) -> Plane:
        across = [v for m in self.marks for v in (m.leakage, *(m.across or ()))]
        up = [v for m in self.marks for v in (m.accuracy, *(m.up or ()))]
        low, high = span([max(0.0, min(1.0, v)) for v in up])
        return Plane(across=span(across), up=(max(low, -0.03), min(high, 1.03)), width=self.width, height=self.height,
                     upward=self.upward)  # fmt: skip

    def color(self, mark: Mark) -> str:
        groups = list(dict.fromkeys(m.group for m in self.marks if m.shape == "circle"))
        return PALETTE[groups.index(mark.group) % len(PALETTE)] if mark.group in groups else SOFT

    def axes(self, plane: Plane) -> Iterator[str]:
        yield text(LEFT, 18, self.title, weight=600)
        middle = (TOP + self.height - BOTTOM) / 2
        yield text(16, middle, self.y, anchor="middle", fill=SOFT, turn=f"rotate(-90 16 {middle:g})")
        yield text((LEFT + self.width - RIGHT) / 2, self.height - 12, self.x, anchor="middle", fill=SOFT)
        for value in ticks(*plane.up):
            height = plane.at(plane.across[0], value)[1]
            yield f'<path d="M{LEFT} {height}H{self.width - RIGHT}" stroke="{LINE}"/>'
            yield text(LEFT - 8, height + 4, f"{100 * value:.3g} %", anchor="end", fill=SOFT)
        for value in ticks(*plane.across):
            place = plane.at(value, plane.up[0])[0]
            yield f'<path d="M{place} {TOP}V{self.height - BOTTOM}" stroke="{LINE}" stroke-opacity=".6"/>'
            yield text(place, self.height - BOTTOM + 18, f"{value:g}", anchor="middle", fill=SOFT)

    def noise_line(self, plane: Plane) -> Iterator[str]:
        """The way that noise takes from no defense on."""
        known = {mark.label: mark for mark in self.marks}
        places = [plane.of(known[label]) for label in self.noise if label in known]
        if len(places) > 1:
            path = " ".join(f"{x},{y}" for x, y in places)
            yield f'<polyline points="{path}" fill="none" stroke="{SOFT}" stroke-dasharray="3 4" stroke-opacity=".8"/>'

    def front(self, plane: Plane) -> Iterator[str]:
        """In steps: what lies to the upper right of the line was reached by nobody."""
        ahead = sorted((plane.of(mark) for mark in self.marks if mark.ahead), reverse=True)
        if not ahead:
            return
        corners: list[tuple[float, float]] = []
        for x, y in ahead:
            corners += [(x, corners[-1][1])] if corners else []
            corners.append((x, y))
        path = " ".join(f"{x},{y}" for x, y in corners)
        yield f'<polyline points="{path}" fill="none" stroke="{ACCENT}" stroke-width="2" stroke-opacity=".55"/>'
        yield from (f'<circle cx="{x}" cy="{y}" r="{SIZE + 5}" fill="none" stroke="{ACCENT}" stroke-width="1.5"/>'
                    for x, y in ahead)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plane:
    """From numbers to places."""

    across: tuple[float, float]
    up: tuple[float, float]
    width: int
    height: int
    upward: bool

    def at(self, leakage: float, accuracy: float) -> tuple[float, float]:
        share = (leakage - self.across[0]) / (self.across[1] - self.across[0])
        share = 1 - share if self.upward else share
        rise = (min(max(accuracy, self.up[0]), self.up[1]) - self.up[0]) / (self.up[1] - self.up[0])
        right, low = self.width - RIGHT, self.height - BOTTOM
        return round(LEFT + share * (right - LEFT), 1), round(low - rise * (low - TOP), 1)

    def of(self, mark: Mark) -> tuple[float, float]:
        return self.at(mark.leakage, mark.accuracy)

    def doubt(self, mark: Mark, color: str) -> Iterator[str]:
        x, y = self.of(mark)
        style = f'stroke="{color}" stroke-opacity=".45" stroke-width="1.2"'
        if mark.across:
            ends = [self.at(value, mark.accuracy)[0] for value in mark.across]
            yield f'<path d="M{ends[0]} {y}H{ends[1]}" {style}/>'
        if mark.up:
            ends = [self.at(mark.leakage, value)[1] for value in mark.up]
            yield f'<path d="M{x} {ends[0]}V{ends[1]}" {style}/>'

    def draw(self, mark: Mark, color: str) -> str:
        x, y = self.of(mark)
        fill = color if mark.believed else CARD
        tooltip = f"<title>{escape(mark.tooltip or mark.label)}</title>"
        style = f'fill="{fill}" stroke="{color}" stroke-width="1.6"'
        if mark.shape == "circle":
            return f'<circle cx="{x}" cy="{y}" r="{SIZE}" {style}>{tooltip}</circle>'
        return f'<path d="{_outline(mark.shape, x, y)}" {style}>{tooltip}</path>'

    def labels(self, marks: Sequence[Mark], unnamed: Sequence[str]) -> Iterator[str]:
        """Each beside its mark, where it covers no mark and no other label; the front first."""
        taken = [self.box(mark) for mark in marks]
        for mark in sorted((m for m in marks if m.label not in unnamed), key=lambda m: not m.ahead):
            x, y = self.of(mark)
            places = [(x + dx, y + dy, anchor) for dx, dy, anchor in AROUND]
            boxes = {place: _box(*place, mark.label, mark.ahead) for place in places}
            left, top, anchor = min(places, key=lambda place: self.crowded(boxes[place], taken))
            taken.append(boxes[left, top, anchor])
            yield _label(round(left, 1), round(top, 1), mark.label, anchor, 600 if mark.ahead else 400)

    def box(self, mark: Mark) -> Box:
        x, y = self.of(mark)
        return x - SIZE - 1, y - SIZE - 1, x + SIZE + 1, y + SIZE + 1

    def crowded(self, box: Box, taken: Sequence[Box]) -> float:
        """The area that it shares with others, and far more for what leaves the picture."""
        outside = box[0] < LEFT or box[2] > self.width - 4 or box[1] < TOP - 8 or box[3] > self.height - BOTTOM + 2
        return 1e6 * outside + sum(_shared(box, other) for other in taken)


def _label(x: float, y: float, words: str, anchor: str, weight: int) -> str:
    """With a rim in the color of the ground, so that no line runs through it."""
    rim = f'stroke="{CARD}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return text(x, y, words, anchor=anchor, fill=INK, weight=weight).replace("<text ", f"<text {rim} ", 1)


def _outline(shape: Shape, x: float, y: float) -> str:
    a = SIZE + 0.5
    if shape == "square":
        return f"M{x - a:g} {y - a:g}h{2 * a:g}v{2 * a:g}h{-2 * a:g}z"
    if shape == "diamond":
        return f"M{x:g} {y - a - 1:g}l{a + 1:g} {a + 1:g}l{-a - 1:g} {a + 1:g}l{-a - 1:g} {-a - 1:g}z"
    return f"M{x:g} {y - a:g}l{a:g} {1.8 * a:g}h{-2 * a:g}z"


def _box(x: float, y: float, anchor: str, label: str, bold: bool = False) -> Box:
    wide = LETTER * len(label) * (BOLD if bold else 1)
    left = {"start": x, "end": x - wide, "middle": x - wide / 2}[anchor]
    return left, y - TALL + 3, left + wide, y + 3


def _shared(one: Box, other: Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, tall)
