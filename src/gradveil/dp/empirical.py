"""From what was identified to an epsilon: the least that an account can say without contradicting it."""

from __future__ import annotations

import math

from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_least
from gradveil.dp.certificate import Neighbors


def empirical_epsilon(
    hits: int,
    of: int,
    candidates: int,
    confidence: float = 0.95,
    *,
    delta: float = 0.0,
    neighbors: Neighbors = "replace-one",
) -> float:
    """The epsilon that is shown by `hits` of `of` pictures named among `candidates`; 0 where guessing explains them.

    By the lower Clopper-Pearson bound p of the rate: log((p - delta) (K - 1) / (1 - p)). An account is refuted if its
    epsilon, with the same delta and the same neighbors, is below it.

    hits: how often the right picture was named
    of: how many were to be named, independent of each other
    candidates: K, the private picture included
    confidence: of the lower bound
    delta: of the account that it is compared with
    neighbors: `replace-one` compares two candidates; `add-remove`, the relation of the accounts of `gradveil.dp`,
        compares with the update without any, and shows less: log((p - delta) K), or what the misses show
    """
    _check(hits, of, candidates, confidence, delta)
    p = at_least(hits, of, confidence)
    if neighbors == "replace-one":
        return _log_ratio((p - delta) * (candidates - 1), 1 - p)
    named = _log_ratio((p - delta) * candidates, 1.0)
    missed = _log_ratio(1 - 1 / candidates - delta, 1 - p)
    return max(named, missed)


def _log_ratio(more: float, less: float) -> float:
    return math.log(more / less) if more > less else 0.0


def _check(hits: int, of: int, candidates: int, confidence: float, delta: float) -> None:
    if candidates < 2:
        raise ConfigError(f"must be 2 or more, got {candidates}", key="candidates")
    if of < 1:
        raise ConfigError(f"must be 1 or more, got {of}", key="of")
    if not 0 <= hits <= of:
        raise ConfigError(f"must be 0 to {of} (`of`), got {hits}", key="hits")
    if not 0 < confidence < 1:
        raise ConfigError(f"must be above 0 and below 1, got {confidence}", key="confidence")
    if not 0 <= delta < 1:
        raise ConfigError(f"must be 0 or more and below 1, got {delta}", key="delta")
