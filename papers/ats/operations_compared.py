"""The scores of `operations.py` beside those that the reproduction published for all 50 operations: rank correlation.

    PYTHONPATH=src python3 papers/ats/operations_compared.py OUT.json reproduction_single_operations.csv

The table has a row for each operation of `ats-code` with `index`, `privacy_score_mean` and `accuracy_score`. Entries
that do the same are 22 of the 50, and equal entries agree for free, so the coefficients are also told over the distinct
functions, both sides averaged over the entries of each. Writes them into OUT.json, the table itself nowhere.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradveil.search.correlation import spearman
from gradveil.transforms.library import LIBRARIES

LIBRARY = LIBRARIES["ats-code"]
SCORES = ("ats-code/unaware", "ats-paper/unaware", "ats-code/adaptive")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, published = map(Path, sys.argv[1:])
    report_of = json.loads(ours.read_text())
    report_of["with the reproduction"] = compared(report_of["scores"], columns(published))
    ours.write_text(json.dumps(report_of, indent=1) + "\n")
    print(json.dumps(report_of["with the reproduction"], indent=1))


def columns(path: Path) -> dict[str, list[float]]:
    with path.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["index"]))
    return {name: [float(row[name]) for row in rows] for name in ("privacy_score_mean", "accuracy_score")}


def compared(scores: Mapping[str, Any], theirs: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    places = range(len(LIBRARY.entries))
    report_of: dict[str, Any] = {}
    for name in SCORES:
        report_of[name] = coefficients([scores[str(i)][name][0] for i in places], theirs["privacy_score_mean"])
    report_of["accuracy"] = coefficients([scores[str(i)]["accuracy"] for i in places], theirs["accuracy_score"])
    return report_of


def coefficients(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"entries": report_of(ours, theirs)}
    groups = same_functions()
    found["functions"] = report_of(means(ours, groups), means(theirs, groups))
    return found


def report_of(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    one = spearman(ours, theirs)
    return {"count": len(ours)} | ({} if one is None else {key: round(x, 3) for key, x in asdict(one).items()})


def same_functions() -> list[list[int]]:
    """The entries of every distinct function; those that do nothing are one."""
    groups: dict[int | None, list[int]] = {}
    for place, first in enumerate(LIBRARY.alike):
        groups.setdefault(first, []).append(place)
    return list(groups.values())


def means(values: Sequence[float], groups: Sequence[Sequence[int]]) -> list[float]:
    return [sum(values[place] for place in group) / len(group) for group in groups]


if __name__ == "__main__":
    main()
