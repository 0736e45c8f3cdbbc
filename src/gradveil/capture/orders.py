"""The orders in which a client that shuffles may have taken its pictures, where they are few enough to try them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

from gradveil.core.local_training import LocalTraining

MOST = 300  # orders that are tried


def count_orders(training: LocalTraining, count: int) -> int:
    """Of so many pictures, those that differ in which step takes which; 0 where there is more than one epoch."""
    size, orders, left = min(training.batch_size or count, count), 1, count
    if training.steps * size > count + size - 1:
        return 0
    for _ in range(training.steps):
        orders *= comb(left, min(size, left))
        left -= min(size, left)
    return orders


def every_order_is_tried(training: LocalTraining, count: int) -> bool:
    """Whether the order is all that a client draws, and there are few enough of them."""
    only = training.shuffles and not replace(training, order="known").draws
    return only and 1 < count_orders(training, count) <= MOST


def list_orders(training: LocalTraining, count: int) -> Iterator[list[int]]:
    """All of them, if they are few: rows in the order in which they are taken; those of no step come last."""
    if 1 < count_orders(training, count) <= MOST:
        yield from _deal(list(range(count)), min(training.batch_size or count, count), training.steps)


def _deal(rows: Sequence[int], size: int, steps: int) -> Iterator[list[int]]:
    if not steps or not rows:
        yield list(rows)
        return
    for first in combinations(rows, min(size, len(rows))):
        for rest in _deal([row for row in rows if row not in first], size, steps - 1):
            yield [*first, *rest]
