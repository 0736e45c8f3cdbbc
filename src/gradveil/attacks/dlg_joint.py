"""Deep Leakage from Gradients (Zhu et al., 2019) with the labels searched for beside the pictures, as published.

For attackers who are not given the labels (`--labels inferred`); one who is has nothing to search for and runs `dlg`.
Differs from the paper as `dlg` does; labels are reported as their likeliest class. Reading them off the last layer is
cheaper and right more often, so this is for models whose last layer says nothing (no linear head, a frozen head, more
examples than classes) and for small ones: the fast back end holds labels fixed, so `vmap` or `loop` run it.
"""

from __future__ import annotations

from gradveil.core.paper import Paper
from gradveil.engine.distance import L2
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.joint_labels import JointLabels, free
from gradveil.engine.spaces.pixels import Pixels

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


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
