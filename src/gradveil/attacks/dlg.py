"""Deep Leakage from Gradients (Zhu et al., 2019): squared distance, L-BFGS.

Differs: one step is one value of the objective (the authors' 300 iterations of torch's L-BFGS are up to 20 each), the
line search is a weak-Wolfe bisection, the distance is relative to the update's size, a little TV is added (`tv=0` is
the paper's; on LeNet and photographs it gains 5 dB), pixels stay in the box unless `boxed=False`, and labels are
given or inferred by iDLG instead of being optimized along.
"""

from __future__ import annotations

from gradveil.attacks.inversion.distance import L2
from gradveil.attacks.inversion.engine import Inversion
from gradveil.attacks.inversion.lbfgs import Lbfgs
from gradveil.attacks.inversion.prior import TotalVariation
from gradveil.attacks.inversion.space import Pixels
from gradveil.defenses.base import Paper

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


def dlg(*, steps: int = 4800, tv: float = 3e-4, restarts: int = 2, boxed: bool = True) -> Inversion:
    """Squared distance minimized by L-BFGS, a line search of its own for every picture."""
    return Inversion(
        distance=L2(relative=True),
        space=Pixels(start="normal", boxed=boxed),
        priors=(TotalVariation(tv),) if tv else (),
        optimizer=Lbfgs(),
        steps=steps,
        restarts=restarts,
    )
