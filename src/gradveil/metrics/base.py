"""A metric: how much of a private picture a reconstruction shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`score(got, truth)` maps two batches of pictures to one number each: [*client, example]."""

    name: str
    score: Callable[[Tensor, Tensor], Tensor]
    more_is_leakier: bool
    unit: str
    summary: str
    chance: float | None = None  # what guessing scores, where that is a number
