"""GradInversion (Yin et al., 2021, "See through Gradients"): with all its priors, and as ATS compares it.

`gradinversion-full`: squared distance, Adam, and priors on smoothness, size, normalization statistics (left out, with a
note, where the model keeps none) and agreement between restarts. Differs: the default divides the distance by the
update's own size, so that one set of weights serves all models, infers labels by `engine/labels.py`, and takes weights
found on tiny models (there, at 16 pixels, the group gains 0.6 to 2 dB on batches of four). In both presets penalties
are means over pixels, pictures stay in their box, and they are registered by whole shifts, if at all.

`gradinversion` is Adam+L2, which ATS (Gao et al., 2021) calls GI: no prior on normalization statistics, no group of
runs that agree with each other, and signed gradients. Ours divides the distance by the update's own size and tries
several TV weights; `gradinversion-ats` is the plain sum with one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gradveil.attacks.invertgrad import OPTIONS, PARTS, search_pixels
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import L2, Distance
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import InferLabels, given_or_idlg, given_or_lowest
from gradveil.engine.optimizer import Adam, Langevin, WarmCosine
from gradveil.engine.priors.group import GroupConsistency
from gradveil.engine.priors.prior import BatchNormStatistics, Norm, Prior, TotalVariation
from gradveil.engine.spaces.space import Pixels, Start

PAPER = Paper("See through Gradients: Image Batch Recovery via GradInversion", "Yin et al.", 2021, "arXiv:2104.07586")
RELATIVE = partial(L2, relative=True)

gradinversion = Preset(
    search_pixels, f"Inverting Gradients with the squared distance; tries every TV weight on every picture.\n{OPTIONS}",
    fixed=PARTS, distance=RELATIVE,
)  # fmt: skip
gradinversion_ats = Preset(
    search_pixels,
    "Adam+L2 as ATS ran it under the name GI: sum of squares, TV 1e-4, 4,800 steps, one start.\n\n"
    f"GradInversion's own strength, the prior on normalization statistics, is not in it.\n{OPTIONS}",
    fixed=PARTS, distance=L2, steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip


ALL_PARTS = ("distance", "labels")  # of the search; what tells the presets apart
ALL_OPTIONS = """
`tv`, `norm`, `statistics`, `group`: weights of total variation, of the pictures' size, of the distance to the
normalization statistics, and of the distance to the mean of the restarts; `registered`: shift the restarts onto each
other before taking the mean; `noise`: added in every step, in units of the rate; `steps`: steps per start;
`restarts`: starts per picture; `rate`: of Adam; `start`: the picture to start from, `normal` or `uniform` noise,
`gray` or `black`; `only`, `without`: patterns of the parameters to match or to leave out.
"""


def search_with_all_priors(
    *,
    steps: int = 2400,
    tv: float = 3e-2,
    norm: float = 1e-6,
    statistics: float = 1e-3,
    group: float = 0.1,
    registered: bool = False,
    noise: float = 0.0,
    restarts: int = 4,
    rate: float = 0.1,
    start: Start = "normal",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    distance: Callable[..., Distance] = RELATIVE,
    labels: InferLabels = given_or_idlg,
) -> Inversion:
    """Squared distance, Adam, and every prior that weighs anything."""
    adam = Adam(rate=rate, schedule=WarmCosine())
    return Inversion(
        distance=distance(only=only, without=without),
        space=Pixels(start=start),
        priors=_priors(tv, norm, statistics, group, registered),
        optimizer=Langevin(inside=adam, noise=noise) if noise else adam,
        steps=steps,
        restarts=restarts,
        infer_labels=labels,
    )


gradinversion_full = Preset(
    search_with_all_priors,
    f"GradInversion with all its priors: TV, size, normalization statistics and a group of restarts.\n{ALL_OPTIONS}",
    fixed=ALL_PARTS,
)
gradinversion_full_paper = Preset(
    search_with_all_priors,
    "GradInversion with the constants of its paper: plain sum of squares, 20,000 steps, labels by lowest weights.\n"
    f"{ALL_OPTIONS}",
    fixed=ALL_PARTS, distance=L2, labels=given_or_lowest,
    steps=20_000, tv=1e-4, statistics=0.1, group=0.01, registered=True, noise=0.2, restarts=8,
)  # fmt: skip


def _priors(tv: float, norm: float, statistics: float, group: float, registered: bool) -> tuple[Prior, ...]:
    """Those that weigh anything."""
    each = (
        (tv, TotalVariation(tv)),
        (norm, Norm(norm)),
        (statistics, BatchNormStatistics(statistics, optional=True)),
        (group, GroupConsistency(group, registered)),
    )
    return tuple(prior for weight, prior in each if weight)
