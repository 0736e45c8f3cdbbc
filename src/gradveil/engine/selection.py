"""Which restart to keep, by what the attacker sees. All take images, total and match as [client, restart, ...]."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from gradveil.engine.priors.prior import TotalVariation

ROUGHNESS = 0.25  # exponent; see docs/decisions/0007 for the pictures it was chosen on


class Selection(Protocol):
    def __call__(self, images: Tensor, total: Tensor, match: Tensor) -> Tensor: ...


def by_objective(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
    """The lowest objective: right when all restarts minimize the same one."""
    return _lowest(total)


def by_match_and_roughness(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
    """The lowest match * roughness ** 0.25: comparable between restarts whose priors weigh differently.

    The match alone prefers noise that happens to fit; the objective prefers whoever was given the smallest weight.
    A product has no scale, so it serves a match of 1e-3 (untrained) and of 1e-1 (trained) alike.
    """
    roughness = TotalVariation().of(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    return _lowest(match.clamp_min(1e-12) * roughness.clamp_min(1e-6) ** ROUGHNESS)


def _lowest(score: Tensor) -> Tensor:
    return score.nan_to_num(nan=float("inf")).argmin(1)
