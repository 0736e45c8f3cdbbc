"""Attackers who know the policy of transformations but not what it drew ([Re] ATS, 2022, "enhanced attack").

They learn the transformation along with the picture and report the picture before it. `shifted-re-ats` is the preset
of the reproduction. `shifted` differs in what comes in at the border (black, as the policies fill it, where theirs is
gray), in starting all around the limits, since the policies draw a sign at random, and in moving the shift slower
than the pixels. `affine` learns a rotation, two shears and a gain as well. `known-policy` learns nothing: it knows the
views that the defense may have drawn and tries them all, as every search here does if the attacker knows the defense;
under this name it is not run by those who do not. `reveal="fed"` reports what the model saw, as the tables of [Re] ATS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gradveil.attacks.invertgrad import TV_WEIGHTS, invertgrad
from gradveil.core.defense import Paper
from gradveil.core.errors import ConfigError
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Adam, Steps
from gradveil.engine.spaces.learned_translation import Affine, Gain, Padding, Part, Shifted, Transformed, starts
from gradveil.engine.spaces.pixels import Pixels, Reveal, Start
from gradveil.engine.spaces.unknown_view import Viewed

PAPER = Paper(
    "[Re] Privacy-preserving collaborative learning with automatic transformation search",
    "Warmerdam et al.",
    2022,
    "ReScience C, doi:10.5281/zenodo.6574713",
)

Limit = Literal["3-1-7", "43-18-18", "hybrid"] | tuple[float, float]
PACE = 0.1  # as fast as the pixels, as the authors have it, a shift jumps before there is a picture to be moved
LIMITS = {"3-1-7": (1.1, 0.2), "43-18-18": (0.4, 0.4), "hybrid": (1.1, 0.4)}  # of |tx| and |ty|; 2 is the whole frame


def known_policy(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    restarts: int | None = None,
    rate: float = 0.1,
    start: Start = "normal",
    reveal: Reveal = "private",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """invertgrad through the likeliest of the views that a known policy leaves; only for attackers who know one."""
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, rate=rate, only=only, without=without)
    return replace(searched, space=Viewed(inner=Pixels(start=start), reveal=reveal))


def shifted(
    *,
    limit: Limit = "hybrid",
    padding: Padding = "black",
    steps: int = 2400,
    tv: float = 1e-2,
    restarts: int | None = None,
    reveal: Reveal = "private",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """invertgrad that learns a shift of up to `limit` (a policy's name or |tx|, |ty|) along with the picture."""
    reach = reach_of(limit)
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts or len(starts(reach)), only=only, without=without)
    return learning(searched, Shifted(limit=reach, padding=padding, pace=PACE), reveal)


def shifted_re_ats(
    *,
    limit: Limit = "hybrid",
    steps: int = 4800,
    tv: float = 1e-4,
    restarts: int = 1,
    reveal: Reveal = "private",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """The learned shift as [Re] ATS ran it: gray comes in, from rest, TV 1e-4, 4,800 steps, one restart."""
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, only=only, without=without)
    return learning(searched, Shifted(limit=reach_of(limit), padding="gray", begin="rest"), reveal)


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
    reveal: Reveal = "private",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Inversion:
    """invertgrad that learns shift, rotation, shear, contrast and brightness; the defaults are the ranges of ATS."""
    reach = reach_of(limit)
    moved = Affine(limit=reach, rotation=rotation, shear=shear, scale=scale, padding=padding, pace=PACE)
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts or len(starts(reach)), only=only, without=without)
    return learning(searched, Transformed(parts=(moved, Gain(limit=(contrast, brightness), pace=PACE))), reveal)


def reach_of(limit: Limit) -> tuple[float, float]:
    reach = LIMITS[limit] if isinstance(limit, str) else limit
    if len(reach) != 2:
        raise ConfigError(f"limit = {list(reach)} is not a limit, take two numbers, of |tx| and of |ty|")
    return reach


def learning(searched: Inversion, space: Part | Transformed, reveal: Reveal) -> Inversion:
    """The search in another space. Only pixels go by the sign: a transformation's numbers are few, and sizes tell."""
    whole = space if isinstance(space, Transformed) else Transformed(parts=(space,))
    revealing = space if reveal == "private" else replace(whole, reveal=reveal)
    return replace(searched, space=revealing, optimizer=Adam(rate=0.1, signed=("pixels",), schedule=Steps()))
