"""GradInversion (Yin et al., 2021, "See through Gradients") with all its priors.

Squared distance, Adam, and priors on smoothness, size, normalization statistics (left out, with a note, where the model
keeps none) and agreement between restarts; `gradinversion` is what ATS makes of it. Differs: the default divides the
distance by the update's own size, so that one set of weights serves all models, infers labels by `labels.py`, and takes
weights found on tiny models (there, at 16 pixels, the group gains 0.6 to 2 dB on batches of four). In both, penalties
are means over pixels, pictures stay in their box, and they are registered by whole shifts, if at all.
"""

from __future__ import annotations

from gradveil.core.defense import Paper
from gradveil.engine.distance import L2
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import given_or_lowest
from gradveil.engine.langevin import Langevin, WarmCosine
from gradveil.engine.optimizer import Adam
from gradveil.engine.priors.group import GroupConsistency
from gradveil.engine.priors.prior import BatchNormStatistics, Norm, Prior, TotalVariation
from gradveil.engine.spaces.pixels import Pixels, Start

PAPER = Paper("See through Gradients: Image Batch Recovery via GradInversion", "Yin et al.", 2021, "arXiv:2104.07586")


def gradinversion_full(
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
) -> Inversion:
    """Squared distance, Adam, and all priors of GradInversion: TV, size, normalization statistics, a group of restarts.

    `registered` shifts the restarts onto each other first; `noise` is added along the way, in units of the rate.
    """
    adam = Adam(rate=rate, schedule=WarmCosine())
    return Inversion(
        distance=L2(relative=True, only=only, without=without),
        space=Pixels(start=start),
        priors=_priors(tv, norm, statistics, group, registered),
        optimizer=Langevin(inside=adam, noise=noise) if noise else adam,
        steps=steps,
        restarts=restarts,
    )


def gradinversion_full_paper(
    *,
    steps: int = 20_000,
    tv: float = 1e-4,
    norm: float = 1e-6,
    statistics: float = 0.1,
    group: float = 0.01,
    registered: bool = True,
    noise: float = 0.2,
    restarts: int = 8,
    rate: float = 0.1,
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """GradInversion with the constants of its paper: plain sum of squares, 20,000 steps, labels by lowest weights."""
    adam = Adam(rate=rate, schedule=WarmCosine())
    return Inversion(
        distance=L2(only=only, without=without),
        space=Pixels(start="normal"),
        priors=_priors(tv, norm, statistics, group, registered),
        optimizer=Langevin(inside=adam, noise=noise) if noise else adam,
        steps=steps,
        restarts=restarts,
        infer_labels=given_or_lowest,
    )


def _priors(tv: float, norm: float, statistics: float, group: float, registered: bool) -> tuple[Prior, ...]:
    """Those that weigh anything."""
    each = (
        (tv, TotalVariation(tv)),
        (norm, Norm(norm)),
        (statistics, BatchNormStatistics(statistics, optional=True)),
        (group, GroupConsistency(group, registered)),
    )
    return tuple(prior for weight, prior in each if weight)
