"""Which metrics a page shows, in which order, and how each is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.update_match import MATCH
from gradveil.audit.verdict.estimate import FactsOf
from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, closeness
from gradveil.core.metric import FED, Facts
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS


def list_metrics(names: Iterable[str], facts: FactsOf) -> list[Facts]:
    """The facts of the metrics that were measured: the one that decides, the catalogue's, then others by name."""
    first = [CLOSENESS.name, *METRICS]
    found = {name.removesuffix(FED) for name in names} - {MATCH.name}
    ordered = sorted(found, key=lambda name: (first.index(name) if name in first else len(first), name))
    return [facts(name) for name in ordered]


def score_columns(names: Iterable[str], run: Run) -> dict[str, Any]:
    """What the templates know of metrics."""
    found = list_metrics(names, run.facts)
    return {
        "closeness": CLOSENESS,
        "identification": IDENTIFICATION,
        "is_identified": IDENTIFICATION in found,
        "searches": [one for one in found if one.lookup and one.name != IDENTIFICATION.name],
        "wider": next((one for one in found if one.lookup and one.lookup.top > 1), None),
        "metrics": [one for one in found if not one.lookup],
        "directions": directions(found),
    }


def directions(found: Iterable[Facts]) -> str:
    """Which way each metric leaks: "a higher PSNR or SSIM and a lower LPIPS"."""
    ways = {True: "higher", False: "lower"}
    labels = {up: [one.label for one in found if one.more_is_leakier is up and not one.lookup] for up in ways}
    return " and ".join(f"a {ways[up]} {' or '.join(some)}" for up, some in labels.items() if some)


def leakage(record: Record, facts: FactsOf) -> float:
    """How close a trial came, so that more is worse: by the metric that decides, else by the first that there is."""
    near = closeness(record)
    if near is not None:
        return near
    measured = [one for one in list_metrics(record.scores, facts) if one.name in record.scores and not one.lookup]
    if measured:
        return measured[0].leakage(record.scores[measured[0].name])
    return record.scores.get(MATCH.name, float("-inf"))
