"""Adam+L1, the variant of Inverting Gradients with the L1 distance that ATS (Gao et al., 2021) compares.

Ours divides the distance by the update's own size, so that one TV weight serves all models, and tries several weights;
`adam-l1-ats` is the plain sum with one. L1 compares lengths: scaling an update blinds it where the cosine notices
nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.defense import Paper
from gradveil.engine.distance import L1
from gradveil.engine.inversion import Inversion
from gradveil.engine.spaces.pixels import Start

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)

TV_WEIGHTS = (1e-3, 1e-2, 1e-1, 3e-1, 1.0)  # ten times those of the cosine: a relative L1 is about as much larger


def adam_l1(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    restarts: int | None = None,
    rate: float = 0.1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """L1 distance, TV and signed Adam; every TV weight is tried on every picture, `restarts` runs in all."""
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, rate=rate, start=start)
    return replace(searched, distance=L1(relative=True, only=only, without=without))


def adam_l1_ats(
    *,
    steps: int = 4800,
    tv: float = 1e-4,
    restarts: int = 1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Adam+L1 as ATS ran it: the plain sum of absolute differences, TV 1e-4, 4,800 steps, one start.

    Beside a sum over all numbers of an update a TV weight of 1e-4 is next to none.
    """
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, start=start)
    return replace(searched, distance=L1(only=only, without=without))
