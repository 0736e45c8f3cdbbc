"""Noise that costs as much accuracy as a defense does: what the defense has to beat."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

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
