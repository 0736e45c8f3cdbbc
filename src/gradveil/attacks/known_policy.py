"""Attackers who know the policy of transformations but not what it drew ([Re] ATS, 2022, "enhanced attack").

They learn the transformation along with the picture and report the picture before it. `shifted-re-ats` is the preset
of the reproduction. `shifted` differs in what comes in at the border (black, as the policies fill it, where theirs is
gray), in starting all around the limits, since the policies draw a sign at random, and in moving the shift slower
than the pixels. `affine` learns a rotation, two shears and a gain as well. Whoever knows the very numbers needs no
such space: the defense's surrogate is enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gradveil.attacks.inversion.engine import Inversion
from gradveil.attacks.inversion.optimizer import Adam, Steps
from gradveil.attacks.inversion.space import Space
from gradveil.attacks.inversion.transformed import Affine, Gain, Padding, Shifted, Transformed, starts
from gradveil.attacks.invertgrad import invertgrad
from gradveil.defenses.base import Paper
from gradveil.errors import ConfigError

PAPER = Paper(
    "[Re] Privacy-preserving collaborative learning with automatic transformation search",
    "Warmerdam et al.",
    2022,
    "ReScience C, doi:10.5281/zenodo.6574713",
)

Limit = Literal["3-1-7", "43-18-18", "hybrid"] | tuple[float, float]
PACE = 0.1  # as fast as the pixels, as the authors have it, a shift jumps before there is a picture to be moved
LIMITS = {"3-1-7": (1.1, 0.2), "43-18-18": (0.4, 0.4), "hybrid": (1.1, 0.4)}  # of |tx| and |ty|; 2 is the whole frame


def shifted(
    *,
    limit: Limit = "hybrid",
    padding: Padding = "black",
    steps: int = 2400,
    tv: float = 1e-2,
    restarts: int | None = None,
) -> Inversion:
    """invertgrad that learns a shift of up to `limit` (a policy's name or |tx|, |ty|) along with the picture."""
    reach = reach_of(limit)
    space = Shifted(limit=reach, padding=padding, pace=PACE)
    return searching(space, steps=steps, tv=tv, restarts=restarts or len(starts(reach)))


def shifted_re_ats(*, limit: Limit = "hybrid", steps: int = 4800, tv: float = 1e-4, restarts: int = 1) -> Inversion:
    """The learned shift as [Re] ATS ran it: gray comes in, from rest, TV 1e-4, 4,800 steps, one restart."""
    space = Shifted(limit=reach_of(limit), padding="gray", begin="rest")
    return searching(space, steps=steps, tv=tv, restarts=restarts)


def affine(
    *,
    limit: Limit = "hybrid",
    rotation: float = 30.0,
    shear: float = 0.3,
    scale: float = 1.0,
    contrast: float = 0.5,
    brightness: float = 0.5,
    padding: Padding = "black",
    steps: int = 2400,
    tv: float = 1e-2,
    restarts: int | None = None,
) -> Inversion:
    """invertgrad that learns shift, rotation, shear, contrast and brightness; the defaults are the ranges of ATS."""
    reach = reach_of(limit)
    moved = Affine(limit=reach, rotation=rotation, shear=shear, scale=scale, padding=padding, pace=PACE)
    space = Transformed(parts=(moved, Gain(limit=(contrast, brightness), pace=PACE)))
    return searching(space, steps=steps, tv=tv, restarts=restarts or len(starts(reach)))


def reach_of(limit: Limit) -> tuple[float, float]:
    reach = LIMITS[limit] if isinstance(limit, str) else limit
    if len(reach) != 2:
        raise ConfigError(f"limit = {list(reach)} is not a limit, take two numbers, of |tx| and of |ty|")
    return reach


def searching(space: Space, *, steps: int, tv: float, restarts: int) -> Inversion:
    """invertgrad in another space. Only pixels go by the sign: a transformation's numbers are few, and sizes tell."""
    optimizer = Adam(rate=0.1, signed=("pixels",), schedule=Steps())
    return replace(invertgrad(steps=steps, tv=tv, restarts=restarts), space=space, optimizer=optimizer)
