"""Where metrics disagree about the same pictures: how they rank them, and which one says leaked where another does not.

A decibel is not what a person sees. A picture that is close and not found, or found and not close, is where a reader
should look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gradveil.audit.verdict.estimate import CellResult, FactsOf
from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, MARGIN, Baselines, closeness
from gradveil.core.metric import FED, Facts
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of
from gradveil.report.scores import list_metrics

LEAST = 4  # trials that a rank correlation is worth the name of
NAMED = 6  # pictures of each kind


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """Of a metric's ranks with those of the metric that decides: 1, the same order of pictures; -1, the opposite."""

    title: str
    value: float
    trials: int


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """One scenario. Lists are worst first and may be longer than what is named."""

    correlations: Sequence[Correlation]
    close: Sequence[Record]  # near in squared error, and not found in the gallery
    far: Sequence[Record]  # found in the gallery, and no nearer than what needs no update
    scored: int

    @property
    def disagree(self) -> int:
        return len(self.close) + len(self.far)


def agreement(cells: Iterable[CellResult], baselines: Baselines, facts: FactsOf = facts_of) -> Agreement | None:
    """Over all trials that measured the metric that decides; None where there is nothing to compare it with."""
    records = [r for cell in cells for r in cell.records if r.status == "ok" and closeness(r) is not None]
    others = {name for r in records for name in r.scores if not name.endswith(FED)} - {CLOSENESS.name}
    compared = [one for one in list_metrics(others, facts) if one.about == "pictures"]
    correlations = [found for one in compared if (found := _correlation(one, records)) is not None]
    searched = [r for r in records if IDENTIFICATION.name in r.scores]
    if not correlations and not searched:
        return None
    nearest_first = sorted(searched, key=lambda r: -r.scores[CLOSENESS.name])
    return Agreement(
        correlations=correlations,
        close=[r for r in nearest_first if _is_close(r, baselines) and not r.scores[IDENTIFICATION.name] > 0],
        far=[
            r
            for r in reversed(nearest_first)
            if baselines.is_found(r, IDENTIFICATION.name) and not _is_close(r, baselines)
        ],
        scored=len(searched),
    )


def _is_close(record: Record, baselines: Baselines) -> bool:
    """As a leaked picture must be."""
    return record.scores[CLOSENESS.name] >= baselines.floor(record) + MARGIN


def _correlation(facts: Facts, records: Sequence[Record]) -> Correlation | None:
    both = [(r.scores[CLOSENESS.name], facts.leakage(r.scores[facts.name])) for r in records if facts.name in r.scores]
    if len(both) < LEAST:
        return None
    value = rank_correlation(*zip(*both, strict=True))
    return None if value is None else Correlation(title=facts.label, value=value, trials=len(both))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's, ties at their mean rank; None where one of the two is constant.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 90.0])
    1.0
    """
    first, second = (_ranks(np.asarray(values, dtype=np.float64)) for values in (x, y))
    spread = first.std() * second.std()
    return float(round(((first * second).mean() - first.mean() * second.mean()) / spread, 12)) if spread > 0 else None


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
