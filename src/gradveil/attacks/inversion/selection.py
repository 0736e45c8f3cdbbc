"""Which restart to keep, by what the attacker sees. All take images, total and match as [client, restart, ...]."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Selection(Protocol):
    def __call__(self, images: Tensor, total: Tensor, match: Tensor) -> Tensor: ...


def by_objective(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
    """The lowest objective: right when all restarts minimize the same one."""
    return total.nan_to_num(nan=float("inf")).argmin(1)
