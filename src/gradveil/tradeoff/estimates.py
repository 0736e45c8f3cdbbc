"""Intervals of a few trainings and of differences, the Pareto front, and the noise that costs as much accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any, NamedTuple

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


class Place(NamedTuple):
    """Of a point: more accuracy is better, more leakage is worse."""

    accuracy: float
    leakage: float

    def beats(self, other: Place) -> bool:
        """Nowhere worse, and somewhere better."""
        return self.accuracy >= other.accuracy and self.leakage <= other.leakage and self != other


def front(places: Mapping[str, Place]) -> tuple[str, ...]:
    """Labels of those whom nobody beats, from little leakage to much.

    >>> front({"a": Place(0.9, 30.0), "b": Place(0.7, 12.0), "c": Place(0.6, 20.0)})
    ('b', 'a')
    """
    kept = [label for label, place in places.items() if not any(other.beats(place) for other in places.values())]
    return tuple(sorted(kept, key=lambda label: (places[label].leakage, label)))


NEGLIGIBLE = 10.0  # noise of a tenth of the smallest scale counts as none
BEYOND = math.sqrt(10.0)  # how far the next try goes beyond the strongest noise
CLOSE = 0.005  # of the accuracy: less is the same


def next_scale(accuracies: Mapping[float, float], wanted: float) -> float | None:
    """The scale to try next: linear in the logarithm between the two that enclose the accuracy, or beyond them all.

    `accuracies` are by scale, that of no noise at 0. None where one that was tried has this accuracy, or where not even
    no noise does.

    >>> next_scale({0: 0.9, 0.01: 0.8, 0.1: 0.4}, 0.6)
    0.032
    """
    scales = sorted(accuracies)
    level = _falling([accuracies[scale] for scale in scales])
    if any(abs(accuracy - wanted) <= CLOSE for accuracy in accuracies.values()):
        return None
    if level[-1] > wanted and scales[-1] > 0:
        return float(f"{scales[-1] * BEYOND:.2g}")
    for place in range(len(scales) - 1):
        if level[place] >= wanted > level[place + 1]:
            low, high = scales[place] or scales[place + 1] / NEGLIGIBLE, scales[place + 1]
            share = (level[place] - wanted) / (level[place] - level[place + 1])
            found = float(f"{low ** (1 - share) * high**share:.2g}")
            return found if found not in accuracies else None
    return None


def matched_scale(accuracies: Mapping[float, float], wanted: float) -> float:
    """The strongest noise that keeps the accuracy; where none does, not even no noise, the nearest.

    >>> matched_scale({0: 0.9, 0.01: 0.8, 0.1: 0.4}, 0.7)
    0.01
    """
    keeps = [scale for scale, accuracy in accuracies.items() if accuracy >= wanted - CLOSE]
    return max(keeps) if keeps else min(accuracies, key=lambda scale: (abs(accuracies[scale] - wanted), -scale))


def _falling(values: Iterable[float]) -> list[float]:
    """More noise never helps: what rises is chance, and is cut off."""
    found, lowest = [], math.inf
    for value in values:
        lowest = min(lowest, value)
        found.append(lowest)
    return found
