"""Inverting Gradients (Geiping et al., 2020): cosine distance, total variation, signed Adam.

The default differs from the paper in what the attacker tries, not in what it knows: several TV weights at once, since
different pictures are best served by different ones, and TV without the border. `invertgrad-ats` is the preset that
ATS and its reproduction attack with (TV 1e-4, 4,800 steps, one restart).
"""

from __future__ import annotations

from collections.abc import Callable

from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import Cosine, Distance
from gradveil.engine.finish import by_match_and_roughness, by_objective
from gradveil.engine.inversion import Inversion
from gradveil.engine.layers import Part
from gradveil.engine.optimizer import Adam, CosineDecay, Optimizer, Schedule, Steps
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.space import Pixels, Start

PAPER = Paper(
    "Inverting Gradients: How easy is it to break privacy in federated learning?",
    "Geiping et al.",
    2020,
    "arXiv:2003.14053",
)
TENFOLD = Steps()
TV_WEIGHTS = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1)
PARTS = ("distance", "optimizer", "signed", "schedule", "part")  # of a search; what tells the methods apart
OPTIONS = """
`steps`: steps per start; `tv`: weight of total variation, or several of which every picture gets each; `restarts`:
starts per picture, by default one per TV weight; `rate`: length of the first steps; `start`: the picture to start
from, `normal` or `uniform` noise, `gray` or `black`; `only`, `without`: patterns of the parameters to match or to
leave out, such as "conv*".
"""


def search_pixels(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    restarts: int | None = None,
    rate: float = 0.1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    distance: Callable[..., Distance] = Cosine,
    optimizer: Callable[..., Optimizer] = Adam,
    signed: bool = True,
    schedule: Schedule = TENFOLD,
    part: Part = "all",
) -> Inversion:
    """Steps from pixel to pixel value, with TV; every TV weight is tried on every picture."""
    weights = (tv,) if isinstance(tv, float | int) else tuple(tv)
    return Inversion(
        distance=distance(only=only, without=without),
        space=Pixels(start=start),
        priors=(TotalVariation(weights),) if any(weights) else (),
        optimizer=optimizer(rate=rate, signed=signed, schedule=schedule),
        steps=steps,
        restarts=restarts or len(weights),
        select=by_objective if len(weights) == 1 else by_match_and_roughness,
        part=part,
    )


invertgrad = Preset(
    search_pixels, f"Inverting Gradients: cosine distance, TV, signed Adam; tries every TV weight.\n{OPTIONS}",
    fixed=PARTS,
)  # fmt: skip
invertgrad_ats = Preset(
    invertgrad,
    "Inverting Gradients as ATS ran it: one TV weight of 1e-4, 4,800 steps, one start.\n\n"
    f"The rate falls tenfold after 3/8, 5/8 and 7/8 of the steps.\n{OPTIONS}",
    steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip
invertgrad_unsigned = Preset(
    search_pixels,
    "Inverting Gradients with the gradient itself instead of its sign, and a rate that falls along a cosine.\n\n"
    f"Stronger than signed steps in some settings, weaker in others: docs/methods/portfolio.md has figures.\n{OPTIONS}",
    fixed=PARTS, signed=False, schedule=CosineDecay(),
)  # fmt: skip
