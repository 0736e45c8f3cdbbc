"""SGD+Cosine, the variant of Inverting Gradients with momentum descent that ATS (Gao et al., 2021) compares.

Ours tries several TV weights, as `invertgrad` does; `sgd-cosine-ats` has the one of ATS.
"""

from __future__ import annotations

from dataclasses import replace

from gradveil.attacks.invertgrad import TV_WEIGHTS, invertgrad
from gradveil.core.defense import Paper
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Sgd, Steps
from gradveil.engine.spaces.pixels import Start

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)


def sgd_cosine(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    restarts: int | None = None,
    rate: float = 0.01,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Cosine distance, TV and signed descent with Nesterov momentum; every TV weight is tried on every picture."""
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, start=start, only=only, without=without)
    return replace(searched, optimizer=Sgd(rate=rate, signed=True, schedule=Steps()))


def sgd_cosine_ats(
    *,
    steps: int = 4800,
    tv: float = 1e-4,
    restarts: int = 1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """SGD+Cosine as ATS ran it: TV 1e-4, 4,800 steps, one start.

    The rate of its configuration, 0.1, is ignored by its code, which takes 0.01; so does this.
    """
    return sgd_cosine(steps=steps, tv=tv, restarts=restarts, start=start, only=only, without=without)
