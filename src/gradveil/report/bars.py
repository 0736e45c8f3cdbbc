"""Bars as SVG text, for numbers that have names instead of places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gradveil.report.charts import INK, PALETTE, SOFT, Frame, document, span, text

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
        size = {"width": self.width, "height": self.height, "bottom": LABELS}
        frame = Frame(across=(-0.6, len(self.names) - 0.4), up=(0.0, span([0.0, *self.values, *ends])[1]), **size)
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
