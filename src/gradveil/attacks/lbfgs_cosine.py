"""L-BFGS+Cosine, the variant of DLG with the cosine distance that ATS (Gao et al., 2021) compares.

Ours takes a line search of its own for every picture; 1 - cosine is rounded at 1e-7 in float32, so where values differ
by less than 1e-6 the search goes by the slopes. `lbfgs-cosine-code` has the constants of the code of ATS; its text
gives the same 300 iterations and best of 16 starts and is silent about the rest.
"""

from __future__ import annotations

from gradveil.attacks.dlg import MEMORY, VALUES
from gradveil.core.defense import Paper
from gradveil.engine.distance import Cosine
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.lbfgs_plain import PlainLbfgs
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.pixels import Pixels, Start

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)


def lbfgs_cosine(
    *,
    steps: int = 4800,
    tv: float = 3e-4,
    restarts: int = 2,
    boxed: bool = True,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """Cosine distance minimized by L-BFGS, a line search of its own for every picture."""
    return Inversion(
        distance=Cosine(only=only, without=without),
        space=Pixels(start=start, boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(rounding=1e-6),
        steps=steps,
        restarts=restarts,
    )


def lbfgs_cosine_code(
    *,
    steps: int = 300 * VALUES,
    tv: float = 1e-4,
    restarts: int = 16,
    rate: float = 1e-4,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """L-BFGS+Cosine as the code of ATS runs it: 300 iterations, best of 16 starts, rate 1e-4, signed gradients.

    L-BFGS learns no curvature from signs, and at 1e-4 the pictures hardly leave their start: a weak attack, to compare
    with that code and not to audit with. Differs: the box is kept after every value and not after every iteration.
    """
    return Inversion(
        distance=Cosine(only=only, without=without),
        space=Pixels(start=start),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=PlainLbfgs(rate=rate, signed=True, memory=min(MEMORY, steps)),
        steps=steps,
        restarts=restarts,
    )
