"""Which rows of a data set an audit takes: a random sample by its seed, or the first ones where a person chose them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Literal

from gradveil.core.seeds import Seed

Draw = Literal["seed", "first"]


def draw_rows(count: int, seed: Seed, draw: Draw = "seed") -> list[int]:
    """All rows, in the order in which an audit with this seed takes them: first the victims, then the others.

    The order follows from the seed and the number of the row alone, so it is the same on every machine and with every
    version of torch, and whoever asks for more pictures gets these and others.
    """
    if draw == "first":
        return list(range(count))
    stream = seed.at("victims")
    return sorted(range(count), key=lambda row: stream.at(row).number())


def describe_rows(rows: Iterable[int]) -> str:
    """In their order, rows that follow each other as one span.

    >>> describe_rows([831, 7, 8, 9, 3])
    '831 7-9 3'
    """
    spans = [[row for _, row in own] for _, own in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0])]
    return " ".join(f"{own[0]}" if len(own) == 1 else f"{own[0]}-{own[-1]}" for own in spans)
