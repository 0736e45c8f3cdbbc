"""L-BFGS+Cosine, the variant of DLG with the cosine distance that ATS (Gao et al., 2021) compares.

Ours takes a line search of its own for every picture; 1 - cosine is rounded at 1e-7 in float32, so where values differ
by less than 1e-6 the search goes by the slopes. `lbfgs-cosine-code` has the constants of the code of ATS; its text
gives the same 300 iterations and best of 16 starts and is silent about the rest.
"""

from __future__ import annotations

from gradveil.attacks.dlg import OPTIONS, PARTS, VALUES, search_plainly
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import Cosine
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.space import Pixels, Start

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
    """DLG with the cosine distance: L-BFGS with a line search for each picture.

    The options are those of `dlg`.
    """
    return Inversion(
        distance=Cosine(only=only, without=without),
        space=Pixels(start=start, boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(rounding=1e-6),
        steps=steps,
        restarts=restarts,
    )


lbfgs_cosine_code = Preset(
    search_plainly,
    "L-BFGS+Cosine as the code of ATS runs it: 300 iterations, best of 16 starts, rate 1e-4, signed gradients.\n\n"
    "L-BFGS learns no curvature from signs, and at 1e-4 the pictures hardly leave their start: a weak attack, to\n"
    "compare with that code and not to audit with. Differs: the box is kept after every value of the objective and\n"
    f"not after every iteration.\n{OPTIONS}",
    fixed=PARTS, distance=Cosine, boxed=True, signed=True, steps=300 * VALUES, tv=1e-4, restarts=16,
)  # fmt: skip
