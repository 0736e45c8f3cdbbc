"""From coarse pictures to fine ones, by L-BFGS: ROG's space (Yue et al., 2023) with the best of the other searches.

Searches for a picture a quarter as wide, then half as wide, then for the pixels, each from where the last ended, while
the weight of TV falls. Distance: 1 - cosine without the last layer (`headless`), since labels are known or read off
before; L-BFGS with a line search (`dlg`) instead of Adam. Differs from ROG: it has one factor, L2 and Adam.
"""

from __future__ import annotations

from gradveil.attacks.rog import PAPER as ROG
from gradveil.core.errors import ConfigError
from gradveil.engine.distance import Cosine
from gradveil.engine.finish import by_match_and_roughness
from gradveil.engine.layers import Part
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.path import Path, Phase
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.space import Pixels

PAPER = ROG


def coarse_to_fine(
    *,
    steps: int = 2400,
    factors: tuple[int, ...] = (4, 2, 1),
    tv: tuple[float, ...] | float = (1e-2, 3e-3, 1e-3),
    restarts: int = 1,
    part: Part = "body",
) -> Path:
    """From coarse pictures to fine ones and from much smoothing to little, by L-BFGS; each phase goes on from the last.

    `steps`: values of the objective per start, in equal shares for all phases; `factors`: how many times smaller the
    pictures of the first phases are, with the first TV weight; `tv`: weight of total variation, or several, the others
    for phases on pixels; `restarts`: starts per picture, the first of them gray; `part`: the layers to match, `all`,
    `body` (all but the last linear one) or `early` (the first half).
    """
    weights = (tv,) if isinstance(tv, float | int) else tuple(tv)
    if not factors or not weights:
        raise ConfigError("no phase is left, give at least one of `factors` and of `tv`", key="coarse-to-fine")
    phases = (*(Phase(factor, weights[0]) for factor in factors), *(Phase(1, weight) for weight in weights[1:]))
    return Path(
        distance=Cosine(),
        space=Pixels(start="gray"),
        priors=(TotalVariation(weights[0]),) if weights[0] else (),
        optimizer=Lbfgs(rounding=1e-6),
        steps=steps,
        restarts=restarts,
        select=by_match_and_roughness,
        part=part,
        phases=phases,
    )
