"""What an attacker who knows a defense may use beside its surrogate: the views and the mixture of the pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor


@dataclass(frozen=True)
class View:
    """One way in which a defense may have changed the pictures.

    `apply` takes pictures in [0, 1] with any leading axes, `[..., channel, height, width]`, and keeps their shape. It
    is differentiable, draws nothing, and runs under `torch.func` and inside a CUDA graph.
    """

    apply: Callable[[Tensor], Tensor]
    name: str


def chained(views: Sequence[View]) -> View:
    """One view after the other."""
    return View(partial(_one_by_one, tuple(views)), "; ".join(view.name for view in views))


def _one_by_one(views: tuple[View, ...], pictures: Tensor) -> Tensor:
    for view in views:
        pictures = view.apply(pictures)
    return pictures


@dataclass(frozen=True, eq=False)
class Mixture:
    """How much of each source went into each encoding: the client's own pictures first, then the public ones."""

    weights: Tensor  # [*client, encoding, source]
    flipped: bool  # whether pixels were flipped about mid-gray afterwards, nobody knows which
    fixed: bool = False  # whether every round has these weights

    def take(self, at: Tensor) -> Mixture:
        return replace(self, weights=self.weights[at])

    @classmethod
    def of_clients(cls, each: Sequence[Mixture]) -> Mixture:
        return replace(each[0], weights=torch.stack([one.weights for one in each]))
