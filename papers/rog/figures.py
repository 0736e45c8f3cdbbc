"""Figures of the studies as SVG, from their JSON lines.

    python3 papers/rog/figures.py curves reconstruct.jsonl curves.svg
    python3 papers/rog/figures.py defenses obfuscation.jsonl defenses.svg

`curves`: LPIPS and PSNR on the way (fig. 4), steps on a logarithmic axis. `defenses`: what is left of every picture's
LPIPS and PSNR under each defense (fig. 6 and 7), means with their intervals; open: the attacker does not know of it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

Line = dict[str, Any]
METRICS = {"lpips": "LPIPS (lower: closer)", "psnr": "PSNR in dB (higher: closer)"}
COLORS = ("#1f5fa8", "#b5521b", "#2f7d4f", "#7a4fa3", "#8a7a1f", "#5a6470")
WIDTH, PANEL, LEFT, TOP, ROW = 960, 330, 150, 40, 30
STYLE = "text{font:13px sans-serif;fill:#222}.axis{stroke:#bbb}.small{font-size:12px;fill:#555}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=tuple(FIGURES))
    parser.add_argument("lines", type=Path, help="what --out of the study has written")
    parser.add_argument("out", type=Path, help="FILE.svg")
    args = parser.parse_args()
    lines = [json.loads(line) for line in args.lines.read_text().splitlines()]
    args.out.write_text(FIGURES[args.figure](lines))


def curves(lines: Sequence[Line]) -> str:
    """One line for each search; its name stands in the legend below."""
    drawn = {f"{line['curve']} ({line['model']})": line["points"] for line in lines if "curve" in line}
    if not drawn:
        raise SystemExit("no line has a curve, give the file of reconstruct.py")
    last, height, parts = max(points[-1]["step"] for points in drawn.values()), 300, list[str]()
    for place, (metric, title) in enumerate(METRICS.items()):
        known = {name: [(p["step"], p[metric]) for p in points if metric in p] for name, points in drawn.items()}
        values = [y for points in known.values() for _, y in points]
        if values:
            x, y = along(place, lambda step: math.log10(step) / max(math.log10(last), 1e-9)), scale(values, height)
            parts += [text(x(1), TOP - 14, title), *grid(values, x(1), y), *decades(last, x, height)]
            parts += [polyline([(x(a), y(b)) for a, b in known[name]], color(i)) for i, name in enumerate(drawn)]
    for i, name in enumerate(drawn):
        where = TOP + height + 50 + 20 * i
        parts += [polyline([(LEFT, where - 4), (LEFT + 26, where - 4)], color(i)), text(LEFT + 34, where, name)]
    return svg(parts, TOP + height + 60 + 20 * len(drawn))


def defenses(lines: Sequence[Line]) -> str:
    """A row for each defense, a dot for each attacker."""
    known = {(line["defense"], line["attacker"]): line for line in lines if "defense" in line}
    known = {key: known.get((key[0], line["as"]), {}) if "as" in line else line for key, line in known.items()}
    if not known:
        raise SystemExit("no line has a defense, give the file of obfuscation.py")
    rows = list(dict.fromkeys(label for label, _ in known))
    height = ROW * len(rows)
    parts = [text(LEFT - 10, TOP + ROW * i + 20, label, "end") for i, label in enumerate(rows)]
    for place, (metric, title) in enumerate(METRICS.items()):
        scores = {key: line[metric] for key, line in known.items() if metric in line}
        if scores:
            ends = [bound for score in scores.values() for bound in between(score)]
            low, high = min(ends), max(ends)
            x = along(place, lambda value, low=low, high=high: (value - low) / max(high - low, 1e-9))
            parts += [text(x(low), TOP - 14, title), *ticks(low, high, x, height)]
            parts += [dot(x, rows.index(key[0]), key[1] == "aware", score) for key, score in scores.items()]
    return svg([*parts, *legend(TOP + height + 52)], TOP + height + 70)


def along(place: int, share: Callable[[float], float]) -> Callable[[float], float]:
    """Shares of a panel to places on the sheet."""
    begin = LEFT + place * (PANEL + 70)
    return lambda value: begin + share(value) * PANEL


def scale(values: Sequence[float], height: float) -> Callable[[float], float]:
    low, high = min(values), max(values)
    return lambda value: TOP + height * (1 - (value - low) / max(high - low, 1e-9))


def grid(values: Sequence[float], left: float, y: Callable[[float], float]) -> list[str]:
    levels = round_numbers(min(values), max(values))
    lines = [line(left, y(level), left + PANEL, y(level)) for level in levels]
    return lines + [text(left - 6, y(level) + 4, f"{level:g}", "end", "small") for level in levels]


def decades(last: int, x: Callable[[float], float], height: float) -> list[str]:
    steps = [*(10**k for k in range(int(math.log10(last)) + 1) if 10**k < last / 1.5), last]
    report = [text(x(step), TOP + height + 18, f"{step}", "middle", "small") for step in steps]
    return [*report, text(x(last), TOP + height + 34, "steps", "end", "small")]


def ticks(low: float, high: float, x: Callable[[float], float], height: float) -> list[str]:
    levels = round_numbers(low, high)
    lines = [line(x(level), TOP, x(level), TOP + height) for level in levels]
    return lines + [text(x(level), TOP + height + 18, f"{level:g}", "middle", "small") for level in levels]


def round_numbers(low: float, high: float) -> list[float]:
    """Three to eight multiples of 1, 2 or 5 times a power of ten."""
    rough = max(high - low, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    unit = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.75)
    return [round(k * unit, 9) for k in range(math.ceil(low / unit), math.floor(high / unit) + 1)]


def between(score: Line) -> tuple[float, float]:
    return score.get("low", score["mean"]), score.get("high", score["mean"])


def dot(x: Callable[[float], float], row: int, aware: bool, score: Line) -> str:
    y, tone = TOP + ROW * row + (19 if aware else 11), color(1 if aware else 0)
    ends = [(x(bound), y) for bound in between(score)]
    inside = tone if aware else "#fff"
    mark = f'<circle cx="{x(score["mean"]):.1f}" cy="{y}" r="4" fill="{inside}" stroke="{tone}" stroke-width="1.5"/>'
    return polyline(ends, tone) + mark


def legend(y: float) -> list[str]:
    report = {"unaware": "attacker does not know of the defense", "aware": "attacker knows of it"}
    shown = zip((LEFT, LEFT + 290), report, (color(0), color(1)), strict=True)
    return [
        f'<circle cx="{x + 6}" cy="{y - 4}" r="4" fill="{tone if kind == "aware" else "#fff"}" stroke="{tone}"/>'
        + text(x + 18, y, report[kind])
        for x, kind, tone in shown
    ]


def color(place: int) -> str:
    return COLORS[place % len(COLORS)]


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "plain") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="axis"/>'


def polyline(points: Sequence[tuple[float, float]], tone: str) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{tone}" stroke-width="2"/>'


def svg(parts: Sequence[str], height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}">'
    return f'{head}<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'


FIGURES = {"curves": curves, "defenses": defenses}


if __name__ == "__main__":
    main()
