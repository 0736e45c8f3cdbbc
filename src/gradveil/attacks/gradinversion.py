"""Adam+L2, which ATS (Gao et al., 2021) calls GI after GradInversion (Yin et al., 2021).

Differs from GradInversion, and so does ATS: no prior on normalization statistics, no group of runs that agree with each
other, and signed gradients. Ours divides the distance by the update's own size, so that one TV weight serves all
models, and tries several weights; `gradinversion-ats` is the plain sum with one.
"""

from __future__ import annotations

from dataclasses import replace

from gradveil.attacks.invertgrad import TV_WEIGHTS, invertgrad
from gradveil.core.defense import Paper
from gradveil.engine.distance import L2
from gradveil.engine.inversion import Inversion
from gradveil.engine.spaces.pixels import Start

PAPER = Paper("See through Gradients: Image Batch Recovery via GradInversion", "Yin et al.", 2021, "arXiv:2104.07586")


def gradinversion(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    restarts: int | None = None,
    rate: float = 0.1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Squared distance, TV and signed Adam; every TV weight is tried on every picture, `restarts` runs in all."""
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, rate=rate, start=start)
    return replace(searched, distance=L2(relative=True, only=only, without=without))


def gradinversion_ats(
    *,
    steps: int = 4800,
    tv: float = 1e-4,
    restarts: int = 1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Adam+L2 as ATS ran it under the name GI: the plain sum of squares, TV 1e-4, 4,800 steps, one start.

    GradInversion's own strength, the prior on normalization statistics, is not in it.
    """
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, start=start)
    return replace(searched, distance=L2(only=only, without=without))
