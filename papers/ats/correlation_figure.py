"""The file of `correlation.py` as figure 5 of ATS shows it, and its coefficients as a table.

    PYTHONPATH=src:papers/ats python3 papers/ats/correlation_figure.py OUT.json figure.svg [KIND [WITHOUT]]

Dots: policies, scored with the half-trained model; the dashed line: pictures without any policy. KIND is what is seen
of the attack: fed (PSNR against the picture as fed, as in the paper), private, blank, gain or identified. WITHOUT, such
as 3 or 3,33, leaves out the policies that hold these operations. For a run that was ended before its time, of the
policies that it came to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from correlation import correlations

from gradveil.report.charts import Chart, Series

AXES = {
    "fed": "PSNR against the picture as fed, dB",
    "private": "PSNR against the private picture, dB",
    "blank": "PSNR of a gray picture, dB",
    "gain": "PSNR of the attack minus that of a gray picture, dB",
    "identified": "share of pictures that are identified",
}
KINDS = {
    "fed": "as fed",
    "private": "private",
    "blank": "gray picture, no attack",
    "gain": "attack minus gray",
    "identified": "identified, as fed",
}


def main() -> None:
    if len(sys.argv) not in (3, 4, 5) or not set(sys.argv[3:4]) <= set(AXES):
        sys.exit(__doc__)
    report = json.loads(Path(sys.argv[1]).read_text())
    for operations in sys.argv[4:]:
        report = without(report, set(operations.split(",")))
    Path(sys.argv[2]).write_text(chart(report, *sys.argv[3:4]).svg())
    print(table(report))


def without(report: dict[str, Any], operations: set[str]) -> dict[str, Any]:
    """The control, and the policies that hold none of these operations."""
    kept = [place for place, policy in enumerate(report["policies"]) if not operations & set(policy.split("-"))]

    def of(values: dict[str, list[float]]) -> dict[str, list[float]]:
        return {key: [each[place] for place in kept if place < len(each)] for key, each in values.items()}

    lists = {name: {model: of(values) for model, values in report[name].items()} for name in ("scores", "psnr")}
    return report | lists | {"policies": [report["policies"][place] for place in kept]}


def chart(report: dict[str, Any], kind: str = "fed", similarity: str = "flat") -> Chart:
    scores, names = report["scores"]["half-trained"][similarity], report["policies"]
    series = []
    for name, psnr in report["psnr"].items():
        points = list(zip(scores[1:], psnr[kind][1:], strict=False))  # a run may have been ended before the last
        series.append(Series(name=name, points=points, titles=names[1:]))
    return Chart(
        title="Score and attack",
        x=f"privacy score: area under the {similarity} similarity of gradients",
        y=AXES[kind],
        series=series,
        horizontals=[psnr[kind][0] for psnr in report["psnr"].values() if psnr[kind]],
    )


def table(report: dict[str, Any]) -> str:
    """One row for each model attacked, model scored with, and similarity: Pearson's against each PSNR."""
    found = correlations(report)
    lines = [
        "| attacked | scored with | similarity | seen | Pearson | Fisher | bootstrap | Spearman | Fieller | policies |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, one in found.items():
        models, similarity, kind = key.rsplit(", ", 2)
        attacked, _, scorer = models.partition(" by ")
        cells = [attacked, scorer, similarity, KINDS[kind], *coefficient_cells(one), str(one["policies"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def coefficient_cells(one: dict[str, Any]) -> list[str]:
    """Empty where there are too few policies for a coefficient."""
    if "pearson" not in one or "spearman" not in one:
        return [""] * 5
    pearson, spearman = one["pearson"], one["spearman"]
    return [
        f"{pearson['value']:.2f}",
        between(pearson["low"], pearson["high"]),
        between(pearson["bootstrap_low"], pearson["bootstrap_high"]),
        f"{spearman['value']:.2f}",
        between(spearman["low"], spearman["high"]),
    ]


def between(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()
