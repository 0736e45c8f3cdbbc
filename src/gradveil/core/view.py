"""What a client may have done to its pictures: one of the ways between which an adaptive attacker has to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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
