"""A metric: how much of a private picture a reconstruction shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Source:
    """The weights that a metric was computed with. The hash is over numbers, so that the kind of file is no matter."""

    sha256: str
    known: bool  # whether they are the published ones


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`score(got, truth)` maps two batches of pictures, or of their labels, to one number each: [*client, example]."""

    name: str
    score: Callable[[Tensor, Tensor], Tensor]
    more_is_leakier: bool
    unit: str
    summary: str
    chance: float | None = None  # what guessing scores, where that is a number
    about: Literal["pictures", "labels"] = "pictures"
    source: Source | None = None
