"""Deep Leakage from Gradients (Zhu et al., 2019): squared distance, L-BFGS.

Differs: one step is one value of the objective (the authors' 300 iterations of torch's L-BFGS are up to 20 each), the
line search is a weak-Wolfe bisection, the distance is relative to the update's size, a little TV is added (`tv=0` is
the paper's; on LeNet and photographs it gains 5 dB), pixels stay in the box unless `boxed=False`, and labels are
given or inferred by iDLG instead of being optimized along.

`dlg-code` and `dlg-paper` are what ATS (Gao et al., 2021) compares with, in its code and in its text. Both run torch's
L-BFGS without a line search on the plain sum of squares, in an open space.

`dlg-joint` searches for the labels beside the pictures, as published. It is for attackers who are not given the labels
(`labels = inferred`); one who is has nothing to search for and runs `dlg`. Reading labels off the last layer is cheaper
and right more often, so it is for models whose last layer does not tell them (no linear head, a frozen head, more
examples than classes) and for small models: the fast back end needs fixed labels, so `vmap` or `loop` runs it.
"""

from __future__ import annotations

from collections.abc import Callable

from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import L2, Distance
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.lbfgs_plain import PlainLbfgs
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.joint_labels import JointLabels, free
from gradveil.engine.spaces.space import Pixels, Start

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")
VALUES = 20  # of the objective in one iteration of torch's L-BFGS
MEMORY = 100  # pairs that it keeps; never more than there are steps
PARTS = ("distance", "boxed", "signed")  # of a search without a line search; what tells the presets apart
OPTIONS = """
`steps`: values of the objective per start; `tv`: weight of total variation; `restarts`: starts per picture; `rate`:
torch's `lr`; `start`: the picture to start from, `normal` or `uniform` noise, `gray` or `black`; `only`, `without`:
patterns of the parameters to match or to leave out.
"""


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
    """Deep Leakage from Gradients: squared distance, L-BFGS with a line search for each picture.

    `steps`: values of the objective per start; `tv`: weight of total variation; `restarts`: starts per picture;
    `boxed`: keep pixels in [0, 1]; `start`: the picture to start from, `normal` or `uniform` noise, `gray` or `black`;
    `only`, `without`: patterns of the parameters to match or to leave out.
    """
    return Inversion(
        distance=L2(relative=True, only=only, without=without),
        space=Pixels(start=start, boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(),
        steps=steps,
        restarts=restarts,
    )


def search_plainly(
    *,
    steps: int = 50 * VALUES,
    tv: float = 1e-3,
    restarts: int = 2,
    rate: float = 1e-4,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    distance: Callable[..., Distance] = L2,
    boxed: bool = False,
    signed: bool = False,
) -> Inversion:
    """torch's L-BFGS without a line search, as the authors' codes run it."""
    return Inversion(
        distance=distance(only=only, without=without),
        space=Pixels(start=start, boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=PlainLbfgs(rate=rate, signed=signed, memory=min(MEMORY, steps)),
        steps=steps,
        restarts=restarts,
    )


dlg_code = Preset(
    search_plainly,
    "DLG as the code of ATS runs it: 50 iterations, 2 starts, TV 1e-3, rate 1e-4. Weak; for comparison.\n\n"
    "At this rate without a line search all 1,000 steps together go a tenth of the way that L-BFGS proposes, so the\n"
    "pictures hardly leave their start: a weak attack, to compare with that code and not to audit with.\n"
    f"{OPTIONS}",
    fixed=PARTS,
)  # fmt: skip
dlg_paper = Preset(
    search_plainly,
    "DLG as the text of ATS describes it: rate 1, no TV, 300 iterations, best of 16 starts.\n\n"
    "Without a line search some starts diverge and end in NaN; one that does not is enough.\n"
    f"{OPTIONS}",
    fixed=PARTS, steps=300 * VALUES, tv=0.0, restarts=16, rate=1.0,
)  # fmt: skip


def dlg_joint(
    *,
    steps: int = 4800,
    tv: float = 3e-4,
    restarts: int = 4,
    boxed: bool = True,
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """DLG that also searches for the labels, for attackers who are not given them."""
    return Inversion(
        distance=L2(relative=True, only=only, without=without),
        space=JointLabels(Pixels(start="normal", boxed=boxed)),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(),
        steps=steps,
        restarts=restarts,
        infer_labels=free,
    )
