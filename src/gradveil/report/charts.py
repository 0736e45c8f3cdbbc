"""Plots as SVG text: points and lines with their intervals. Nothing to install, nothing to load.

Colors follow the page where there is one (`var(--ink)` ...) and have values of their own for a file by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal


def page_color(name: str, alone: str) -> str:
    """The color of that name on our page, another where the chart stands alone."""
    return f"var(--{name}, {alone})"


PALETTE = ("#1b7fb5", "#c2571a", "#5b8c3e", "#a3262a", "#7a5ea8", "#8a6d1d")
INK, SOFT, LINE = page_color("ink", "#1d2329"), page_color("soft", "#566069"), page_color("line", "#dfddd7")
CARD = page_color("card", "#fff")
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 34, 52
LABELED = 7  # ticks at most


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points (x, y), drawn as dots or joined; `between` are the low and high ends of y where there is doubt."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: Literal["dots", "line"] = "dots"
    between: Sequence[tuple[float, float]] = ()
    titles: Sequence[str] = ()  # what a dot says when pointed at


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One pair of axes with everything drawn on it."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    width: int = 640
    height: int = 380
    horizontals: Sequence[float] = ()  # dashed lines across
    labels: Mapping[float, str] = field(default_factory=dict)  # of places on the horizontal axis, instead of numbers

    def svg(self) -> str:
        finite = [p for s in self.series for p in s.points if all(map(math.isfinite, p))]
        if not finite:
            return document(self.width, self.height, [text(LEFT, TOP, f"{self.title}: no numbers to draw")])
        ends = [v for s in self.series for pair in s.between for v in pair if math.isfinite(v)]
        frame = Frame(
            across=span([p[0] for p in finite]),
            up=span([p[1] for p in finite] + ends + list(self.horizontals)),
            width=self.width,
            height=self.height,
            labels=self.labels,
        )
        body = [*frame.draw(self.title, self.x, self.y), *map(frame.horizontal, self.horizontals)]
        for number, series in enumerate(self.series):
            body += frame.series(series, PALETTE[number % len(PALETTE)])
        return document(self.width, self.height, body + frame.legend([s.name for s in self.series]))


@dataclass(frozen=True, kw_only=True)
class Frame:
    """From numbers to places."""

    across: tuple[float, float]
    up: tuple[float, float]
    width: int
    height: int
    bottom: int = BOTTOM
    labels: Mapping[float, str] = field(default_factory=dict)

    def place(self, x: float, y: float) -> tuple[float, float]:
        share = (x - self.across[0]) / (self.across[1] - self.across[0])
        rise = (y - self.up[0]) / (self.up[1] - self.up[0])
        right, low = self.width - RIGHT, self.height - self.bottom
        return round(LEFT + share * (right - LEFT), 1), round(low - rise * (low - TOP), 1)

    def draw(self, title: str, x: str, y: str) -> Iterator[str]:
        yield from self.draw_grid(title, y)
        yield text((LEFT + self.width) / 2, self.height - 10, x, anchor="middle", fill=SOFT)
        for value, label in (self.labels or {tick: f"{tick:g}" for tick in ticks(*self.across)}).items():
            at, _ = self.place(value, self.up[0])
            yield text(at, self.height - self.bottom + 18, label, anchor="middle", fill=SOFT)

    def draw_grid(self, title: str, y: str) -> Iterator[str]:
        """All but the horizontal axis."""
        yield text(LEFT, 18, title, weight=600)
        middle = (TOP + self.height - self.bottom) / 2
        yield text(16, middle, y, anchor="middle", fill=SOFT, turn=f"rotate(-90 16 {middle:g})")
        for value in ticks(*self.up):
            _, height = self.place(self.across[0], value)
            yield f'<path d="M{LEFT} {height}H{self.width - RIGHT}" stroke="{LINE}"/>'
            yield text(LEFT - 8, height + 4, f"{value:g}", anchor="end", fill=SOFT)

    def horizontal(self, value: float) -> str:
        _, height = self.place(self.across[0], value)
        return f'<path d="M{LEFT} {height}H{self.width - RIGHT}" stroke="{SOFT}" stroke-dasharray="5 4"/>'

    def series(self, series: Series, color: str) -> Iterator[str]:
        for (x, _), (low, high) in zip(series.points, series.between, strict=False):
            if math.isfinite(low) and math.isfinite(high):
                (place, bottom), (_, top) = self.place(x, low), self.place(x, high)
                yield f'<path d="M{place} {bottom}V{top}" stroke="{color}" stroke-opacity=".5"/>'
        places = [self.place(*point) for point in series.points if all(map(math.isfinite, point))]
        if series.kind == "line":
            path = " ".join(f"{x},{y}" for x, y in places)
            yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
            return
        titles = series.titles or [""] * len(places)
        for (x, y), title in zip(places, titles, strict=False):
            tooltip = f"<title>{escape(title)}</title>" if title else ""
            yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}" fill-opacity=".7">{tooltip}</circle>'

    def legend(self, names: Sequence[str]) -> list[str]:
        if len(names) < 2:
            return []
        drawn, x = [], float(self.width - RIGHT)
        for number in reversed(range(len(names))):
            x -= 7.0 * len(names[number]) + 24
            drawn.append(
                f'<rect x="{x:g}" y="10" width="10" height="10" rx="2" fill="{PALETTE[number % len(PALETTE)]}"/>'
            )
            drawn.append(text(x + 14, 19, names[number], fill=SOFT))
        return drawn


def span(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis, a little beyond the numbers.

    >>> span([1.0, 1.0])
    (0.5, 1.5)
    """
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    alike = high - low <= max(1e-12 * largest, 1e-100)  # no room for the labels between them
    room = max(0.5, 0.05 * largest) if alike else 0.05 * (high - low)
    return low - room, high + room


def ticks(low: float, high: float) -> Iterator[float]:
    """Round numbers between two ends.

    >>> list(ticks(0.18, 0.64))
    [0.2, 0.3, 0.4, 0.5, 0.6]
    """
    unit = 10.0 ** math.floor(math.log10((high - low) / LABELED))
    step = next(unit * k for k in (1, 2, 5, 10) if (high - low) / (unit * k) <= LABELED)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield round(number * step, 10)


def text(
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK, weight: int = 400, turn: str = ""
) -> str:
    turned = f' transform="{turn}"' if turn else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}"{turned}>'
        f"{escape(words)}</text>"
    )


def document(width: int, height: int, body: Sequence[str]) -> str:
    style = f"font:12px system-ui,sans-serif;background:{CARD}"
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" style="{style}">\n'
        f"{lines}\n</svg>\n"
    )


LABELS = 110  # pixels below the axis, for names that lean


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One bar for each name, with its interval, from zero up; those named in `marked` stand out."""

    title: str
    y: str
    names: Sequence[str]
    values: Sequence[float]
    between: Sequence[tuple[float, float]] = ()
    marked: Sequence[str] = ()
    width: int = 960
    height: int = 320

    def svg(self) -> str:
        ends = [v for pair in self.between for v in pair]
        across, up = (-0.6, len(self.names) - 0.4), (0.0, span([0.0, *self.values, *ends])[1])
        frame = Frame(across=across, up=up, width=self.width, height=self.height, bottom=LABELS)
        body = list(frame.draw_grid(self.title, self.y))
        for place, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
            body += self.bar(frame, place, name, value)
        return document(self.width, self.height, body)

    def bar(self, frame: Frame, place: int, name: str, value: float) -> Iterator[str]:
        left, top = frame.place(place - 0.38, value)
        right, base = frame.place(place + 0.38, frame.up[0])
        color = PALETTE[1] if name in self.marked else PALETTE[0]
        tooltip = f"<title>{escape(name)}: {value:.4g}</title>"
        size = f'width="{right - left:.1f}" height="{base - top:.1f}"'
        yield f'<rect x="{left}" y="{top}" {size} fill="{color}">{tooltip}</rect>'
        if place < len(self.between):
            (middle, bottom), (_, peak) = (frame.place(place, end) for end in self.between[place])
            yield f'<path d="M{middle} {bottom}V{peak}" stroke="{INK}"/>'
        middle = (left + right) / 2
        turn = f"rotate(-60 {middle:.1f} {base + 12})"
        yield text(middle, base + 12, name, anchor="end", fill=SOFT, turn=turn)
