"""Deep Leakage from Gradients (Zhu et al., 2019): squared distance, L-BFGS.

Differs: one step is one value of the objective (the authors' 300 iterations of torch's L-BFGS are up to 20 each), the
line search is a weak-Wolfe bisection, the distance is relative to the update's size, a little TV is added (`tv=0` is
the paper's; on LeNet and photographs it gains 5 dB), pixels stay in the box unless `boxed=False`, and labels are
given or inferred by iDLG instead of being optimized along.

`dlg-code` and `dlg-paper` are what ATS (Gao et al., 2021) compares with, in its code and in its text. Both run torch's
L-BFGS without a line search on the plain sum of squares, in an open space.
"""

from __future__ import annotations

from gradveil.core.defense import Paper
from gradveil.engine.distance import L2
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.lbfgs_plain import PlainLbfgs
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.pixels import Pixels, Start

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")
VALUES = 20  # of the objective in one iteration of torch's L-BFGS
MEMORY = 100  # pairs that it keeps; never more than there are steps


def dlg(
    *,
    steps: int = 4800,
    tv: float = 3e-4,
    restarts: int = 2,
    boxed: bool = True,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Squared distance minimized by L-BFGS, a line search of its own for every picture."""
    return Inversion(
        distance=L2(relative=True, only=only, without=without),
        space=Pixels(start=start, boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(),
        steps=steps,
        restarts=restarts,
    )


def dlg_code(
    *,
    steps: int = 50 * VALUES,
    tv: float = 1e-3,
    restarts: int = 2,
    rate: float = 1e-4,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """DLG as the code of ATS runs it: 50 iterations, 2 starts, TV 1e-3 and steps of a ten-thousandth.

    At a rate of 1e-4 without a line search all 1,000 steps together go a tenth of the way that L-BFGS proposes, so
    the pictures hardly leave their start: a weak attack, to compare with that code and not to audit with.
    """
    return Inversion(
        distance=L2(only=only, without=without),
        space=Pixels(start=start, boxed=False),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=PlainLbfgs(rate=rate, memory=min(MEMORY, steps)),
        steps=steps,
        restarts=restarts,
    )


def dlg_paper(
    *,
    steps: int = 300 * VALUES,
    tv: float = 0.0,
    restarts: int = 16,
    rate: float = 1.0,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """DLG as the text of ATS tells it: the settings of DLG's paper (rate 1, no TV), 300 iterations, best of 16 starts.

    Without a line search some starts run away and end as no number; one that stays is enough.
    """
    return dlg_code(steps=steps, tv=tv, restarts=restarts, rate=rate, start=start, only=only, without=without)
