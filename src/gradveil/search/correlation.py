"""Does the score predict what an attack sees? Pearson and Spearman over policies, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

RESAMPLES = 4_000
FEWEST = 4  # policies: Fisher's interval needs one more than three


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """One coefficient: Fisher's z interval, and the percentile bootstrap over policies."""

    value: float
    low: float
    high: float
    bootstrap_low: float
    bootstrap_high: float

    @property
    def is_positive(self) -> bool:
        """Whether both intervals lie above 0: a higher score, a better picture."""
        return min(self.low, self.bootstrap_low) > 0


def pearson(scores: Sequence[float], seen: Sequence[float], level: float = 0.95) -> Correlation | None:
    """Linear; None where there are too few policies, or where one side never changes."""
    return _correlation(np.asarray(scores, float), np.asarray(seen, float), level, ranked=False)


def spearman(scores: Sequence[float], seen: Sequence[float], level: float = 0.95) -> Correlation | None:
    """Of ranks; the variance of its z is 1.06 / (n - 3) (Fieller et al., 1957)."""
    return _correlation(np.asarray(scores, float), np.asarray(seen, float), level, ranked=True)


def _correlation(x: np.ndarray, y: np.ndarray, level: float, ranked: bool) -> Correlation | None:
    if len(x) != len(y):
        raise ValueError(f"expected as many scores as results, got {len(x)} and {len(y)}")
    if len(x) < FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    value = float(_coefficient(x[None], y[None], ranked)[0])
    z, reach = np.arctanh(np.clip(value, -1 + 1e-15, 1 - 1e-15)), ndtri((1 + level) / 2) / np.sqrt(len(x) - 3)
    reach *= np.sqrt(1.06) if ranked else 1.0
    low, high = _bootstrap(x, y, level, ranked)
    ends = {"low": float(np.tanh(z - reach)), "high": float(np.tanh(z + reach))}
    return Correlation(value=value, **ends, bootstrap_low=low, bootstrap_high=high)


def _bootstrap(x: np.ndarray, y: np.ndarray, level: float, ranked: bool) -> tuple[float, float]:
    """Pairs drawn with replacement; a draw in which one side never changes has no coefficient and is left out."""
    drawn = np.random.default_rng(len(x)).integers(0, len(x), (RESAMPLES, len(x)))
    left, right = x[drawn], y[drawn]
    moving = (np.ptp(left, axis=1) > 0) & (np.ptp(right, axis=1) > 0)
    values = _coefficient(left[moving], right[moving], ranked)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _coefficient(x: np.ndarray, y: np.ndarray, ranked: bool) -> np.ndarray:
    """Of every row: x[draw, n], y[draw, n] -> [draw]."""
    if ranked:
        x, y = rankdata(x, axis=1), rankdata(y, axis=1)
    x, y = (v - v.mean(1, keepdims=True) for v in (x, y))
    return (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
