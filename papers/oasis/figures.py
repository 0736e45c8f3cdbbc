"""Figures 3 to 6 and 13 of OASIS (Jeter et al., 2024) as SVG, from the lines of `attacks.py` and `adaptive.py`.

    PYTHONPATH=src python3 papers/oasis/figures.py papers/oasis/results

Reads `attacks.jsonl` (sweeps) and `boxes.jsonl` (every picture's PSNR) in that folder and writes `fig*.svg` beside
them. A box goes from quartile to quartile with the median in it, whiskers to the last value within 1.5 boxes, a
triangle at the mean, as the paper's. Dashed lines are the paper's best means for batches of 8 and 64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradveil.report.charts import INK, PALETTE, SOFT, Chart, Frame, Series, document, span, text

PAPER = {"rtf": (147.72, 121.72), "cah": (70.54, 40.02)}
SETTINGS = {"paper": "published setting", "ours": "ours"}
SHORT = {
    "none": "WO", "major": "MR", "minor": "mR", "shear": "SH", "hflip": "HFlip", "vflip": "VFlip",
    "major+shear": "MR+SH",
}  # fmt: skip
BOXES = {  # file: title, server
    "fig05-rtf": ("RTF by the mean", "mean"),
    "fig06-cah": ("CAH tuned for the private pictures", "cah"),
    "fig06-cah-copies": ("CAH tuned for pictures and copies", "cah-copies"),
    "fig13-single-layer": ("A single-layer model, nothing planted", "single-layer"),
}
WIDE = 0.34  # half of a box and its neighbor


@dataclass(frozen=True, kw_only=True)
class Box:
    """What is drawn of many numbers."""

    low: float
    quartiles: tuple[float, float, float]
    high: float
    mean: float


def box_of(values: Sequence[float]) -> Box:
    """Whiskers end at values that are there."""
    first, middle, third = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    reach = 1.5 * (third - first)
    inside = [v for v in values if first - reach <= v <= third + reach]
    quartiles = (first, middle, third)
    return Box(low=min(inside), quartiles=quartiles, high=max(inside), mean=float(np.mean(values)))


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """For each name a box of each group, side by side."""

    title: str
    names: Sequence[str]
    groups: Mapping[str, Sequence[Box | None]]
    width: int = 640
    height: int = 380

    def svg(self) -> str:
        drawn = [box for some in self.groups.values() for box in some if box is not None]
        up = span([0.0, *(box.high for box in drawn)])
        frame = Frame(across=(-0.5, len(self.names) - 0.5), up=up, width=self.width, height=self.height)
        body = [*frame.draw_grid(self.title, "PSNR in dB"), *frame.legend(list(self.groups))]
        for place, name in enumerate(self.names):
            at, _ = frame.place(place, up[0])
            body.append(text(at, self.height - 30, name, anchor="middle", fill=SOFT))
            for number, some in enumerate(self.groups.values()):
                body += self.box(frame, place, number, some[place])
        return document(self.width, self.height, body)

    def box(self, frame: Frame, place: int, number: int, box: Box | None) -> Iterator[str]:
        if box is None:
            return
        wide, color = 2 * WIDE / len(self.groups), PALETTE[number]
        left = place - WIDE + number * wide
        (start, top), (end, base) = (
            frame.place(left, box.quartiles[2]),
            frame.place(left + 0.86 * wide, box.quartiles[0]),
        )
        middle, ends = (start + end) / 2, (frame.place(0, box.low)[1], frame.place(0, box.high)[1])
        for reach, edge in zip(ends, (base, top), strict=True):
            yield f'<path d="M{middle:.1f} {edge}V{reach}M{middle - 4:.1f} {reach}h8" stroke="{color}" fill="none"/>'
        size = f'width="{end - start:.1f}" height="{max(base - top, 1):.1f}"'
        yield f'<rect x="{start}" y="{top}" {size} fill="{color}" fill-opacity=".25" stroke="{color}"/>'
        yield f'<path d="M{start} {frame.place(0, box.quartiles[1])[1]}H{end}" stroke="{color}" stroke-width="2"/>'
        mean = frame.place(0, box.mean)[1]
        said = f"<title>mean {box.mean:.1f} dB</title>"
        yield f'<path d="M{middle:.1f} {mean - 4:.1f}l4 7h-8z" fill="{INK}">{said}</path>'


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    for name, svg in (figures_of(lines_of(folder / "attacks.jsonl"), lines_of(folder / "boxes.jsonl"))).items():
        (folder / f"{name}.svg").write_text(svg)
        print(folder / f"{name}.svg")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def figures_of(sweeps: list[dict[str, Any]], boxes: list[dict[str, Any]]) -> dict[str, str]:
    drawn = {"fig03-rtf": sweep(sweeps, "rtf"), "fig04-cah": sweep(sweeps, "cah")}
    return drawn | {name: transforms(boxes, title, server) for name, (title, server) in BOXES.items()}


def sweep(lines: list[dict[str, Any]], attack: str) -> str:
    """Mean PSNR by neurons; pictures that were not read count too."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        if line["attack"] == attack and line.get("pixels", 32) == 32:
            name = f"{SETTINGS[line['setting']]}, {line['batch_size']}"
            curves.setdefault(name, []).append((line["neurons"], line["mean_psnr"]))
    series = [Series(name=name, points=sorted(points), kind="line") for name, points in sorted(curves.items())]
    title = {"rtf": "RTF", "cah": "CAH"}[attack]
    return Chart(title=title, x="neurons", y="mean PSNR in dB", series=series, horizontals=PAPER[attack]).svg()


def transforms(lines: list[dict[str, Any]], title: str, server: str) -> str:
    read = {(line["size"], line["transforms"]): line["per_picture_psnr"] for line in lines if line["server"] == server}
    names = [name for name in SHORT if any(name == one for _, one in read)]
    groups = {
        f"batches of {size}": [box_of(read[size, name]) if (size, name) in read else None for name in names]
        for size in sorted({size for size, _ in read})
    }
    return Boxes(title=title, names=[SHORT[name] for name in names], groups=groups).svg()


if __name__ == "__main__":
    main()
