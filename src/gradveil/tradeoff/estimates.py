"""Intervals of a few trainings, and of differences between the same trainings or pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from scipy.special import stdtrit

from gradveil.core.interval import mean_interval, rate_interval

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Between:
    """A mean and where it may really lie, 95 %; without an interval where one value is all there is."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


def of_trainings(values: Sequence[float]) -> Between:
    """Student's interval: a bootstrap of three values would be far too narrow.

    >>> found = of_trainings([0.5, 0.6, 0.7])
    >>> round(found.low, 3), round(found.high, 3)
    (0.352, 0.848)
    """
    center, count = mean(values), len(values)
    if count < 2:
        return Between(mean=center, low=None, high=None, count=count)
    room = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * stdev(values) / math.sqrt(count)
    return Between(mean=center, low=center - room, high=center + room, count=count)


def of_accuracies(values: Sequence[float]) -> Between:
    """The same of shares, whose interval ends where shares do.

    >>> of_accuracies([0.8, 0.99, 0.99]).high
    1.0
    """
    found = of_trainings(values)
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(0.0, found.low), high=min(1.0, found.high))


def of_pictures(values: Sequence[float]) -> Between:
    found = mean_interval(values)
    return Between(mean=mean(values), low=found and found.low, high=found and found.high, count=len(values))


def of_share(hits: int, of: int) -> Between:
    found = rate_interval(hits, of)
    return Between(mean=hits / of, low=found.low, high=found.high, count=of)


def differences(here: Mapping[Any, float], there: Mapping[Any, float]) -> list[float]:
    """Of what both have measured, in a fixed order."""
    return [here[key] - there[key] for key in sorted(here) if key in there]
