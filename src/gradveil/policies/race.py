"""Successive halving on pictures: the worse half leaves after a few of them, the better half is looked at more closely.

Areas of one picture under two policies share their random numbers, so policies are compared by the differences
picture by picture, whose spread is much smaller than that of the areas.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
AT_ONCE = 128  # pictures between two lines of a journal
SMALLEST = 8  # pictures: fewer say nothing of their own spread


def blocks(images: int, rungs: int = 4) -> tuple[range, ...]:
    """The pictures in blocks that double what was seen before: of 100, the first 13, then 13, 26 and 48 more.

    >>> [len(block) for block in blocks(100)]
    [13, 13, 26, 48]
    """
    end = min(images, max(SMALLEST, -(-images // 2 ** (rungs - 1))))
    found = [range(0, end)]
    while end < images:
        found.append(range(end, min(images, 2 * end)))
        end = found[-1].stop
    return tuple(found)


def whole(images: int) -> tuple[range, ...]:
    """The pictures without a race: all at once as far as that is wise."""
    return tuple(range(first, min(images, first + AT_ONCE)) for first in range(0, images, AT_ONCE))


def survivors(areas: np.ndarray, top: int) -> list[int]:
    """Of areas[policy, picture], small is good: the better half by the mean, and all that may be among the best `top`.

    A policy may be among them if the interval of its paired difference from the last of them reaches 0.
    """
    order = np.argsort(areas.mean(1), kind="stable")
    keep = max(top, -(-len(order) // 2))
    last = areas[order[min(top, len(order)) - 1]]
    near = [place for place in order[keep:].tolist() if _lowest(areas[place] - last) <= 0]
    return sorted([*order[:keep].tolist(), *near])


def _lowest(differences: np.ndarray) -> float:
    """The lower end of the two-sided t interval of the mean difference."""
    count = len(differences)
    if count < 2:
        return float("-inf")
    reach = stdtrit(count - 1, (1 + LEVEL) / 2) * differences.std(ddof=1) / np.sqrt(count)
    return float(differences.mean() - reach)
