"""The lines of `sweeps.py` as tables, and figure 11 of ATS: steps, stages and batch sizes with and without the policy.

    PYTHONPATH=src python3 papers/ats/sweeps_table.py OUT.jsonl FOLDER

Prints the tables in markdown and writes FOLDER/steps.svg, stages.svg and batches.svg where there are lines for them. A
cell that was run twice counts as it was run last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gradveil.report.charts import Chart, Series

AXES = {"steps": "steps of the attack", "stages": "share of the training in %", "batches": "pictures in a batch"}
Lines = list[dict[str, Any]]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, folder = map(Path, sys.argv[1:])
    sweeps = by_sweep([json.loads(line) for line in source.read_text().splitlines()])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in sweeps.items():
        print(f"### {name}\n\n{table(lines)}\n")
        if name in AXES:
            (folder / f"{name}.svg").write_text(chart(name, lines).svg())


def by_sweep(lines: Lines) -> dict[str, Lines]:
    cells = {(line["sweep"], line["value"], line["policy"], line["model"]): line for line in lines}
    found: dict[str, Lines] = {}
    for (sweep, *_), line in cells.items():
        found.setdefault(sweep, []).append(line)
    return found


def table(lines: Lines) -> str:
    """Mean PSNR with its interval, against the picture as fed and the private one, and how many were identified; `gray`
    is the PSNR of a gray picture against the one as fed."""
    head = "value | policy | PSNR, fed | gray | PSNR, private | identified, fed | identified, private | pictures"
    rows = [f"| {head} | seconds |", "|---|---|---|---|---|---|---|---|---|"]
    for line in lines:
        cells = [line["value"], line["policy"], psnr(line["psnr_fed"]), gray(line)]
        cells.append(psnr(line["psnr_private"]))
        cells += [line["identified_fed"], line["identified_private"], len(line["psnr_fed"]["each"]), line["seconds"]]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def gray(line: dict[str, Any]) -> str:
    return f"{line['blank_fed']:.2f}" if "blank_fed" in line else ""  # the first files have it not


def psnr(one: dict[str, Any]) -> str:
    between = "" if one["low"] is None else f" ({one['low']:.2f} to {one['high']:.2f})"
    return f"{one['mean']:.2f}{between}"


def chart(name: str, lines: Lines) -> Chart:
    """Lines with the interval of each mean, against the picture as fed."""
    series = []
    for policy in dict.fromkeys(line["policy"] for line in lines):
        some = sorted((line for line in lines if line["policy"] == policy), key=lambda line: line["value"])
        means = [line["psnr_fed"] for line in some]
        points = [(line["value"], one["mean"]) for line, one in zip(some, means, strict=True)]
        ends = [(one["low"], one["high"]) if one["low"] is not None else (one["mean"],) * 2 for one in means]
        series.append(Series(name=policy, points=points, between=ends, kind="line"))
    title = f"{lines[0]['model']} ({lines[0]['data']})"
    return Chart(title=title, x=AXES[name], y="PSNR as fed, dB", series=series)


if __name__ == "__main__":
    main()
