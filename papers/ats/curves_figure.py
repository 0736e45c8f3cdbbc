"""The curves of `federated.py` as figure 7 of ATS shows them.

PYTHONPATH=src python3 papers/ats/curves_figure.py OUT/curves.jsonl figure.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gradveil.report.charts import Chart, Series

NAMES = {"none": "without", "hybrid": "with the hybrid policy"}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(Path, sys.argv[1:])
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    target.write_text(chart(lines).svg())


def chart(lines: list[dict]) -> Chart:
    """A round that was told twice, since a run went on from before it, counts as it was told last."""
    curves: dict[str, dict[float, float]] = {}
    for line in lines:
        curves.setdefault(line["defense"], {})[line["epoch"]] = 100 * line["accuracy"]
    series = [Series(name=NAMES[name], points=sorted(points.items()), kind="line") for name, points in curves.items()]
    paper = sorted({line["paper"] for line in lines})
    return Chart(
        title="Ten participants (dashed: paper)",
        x="epoch",
        y="test accuracy in %",
        series=series,
        horizontals=paper,
    )


if __name__ == "__main__":
    main()
