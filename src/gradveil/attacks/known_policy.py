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
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Adam, Steps
from gradveil.engine.spaces.learned_translation import Affine, Begin, Gain, Padding, Part, Shifted, Transformed, starts
from gradveil.engine.spaces.space import Pixels, Reveal, Start
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
OPTIONS = """
`limit`: the largest shift, a policy's name or two numbers for |tx| and |ty|, where 2 is the whole frame; `padding`:
color of the border, `black` or `gray`; `steps`: steps per start; `tv`: weight of total variation; `restarts`: starts
per picture; `reveal`: report the picture before the shift (`private`) or as the model saw it (`fed`); `only`,
`without`: patterns of the parameters to match or to leave out.
"""


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
    """Inverting Gradients for attackers who know the transformation policy: tries every view of it.

    `reveal`: report the picture before the transformation (`private`) or as the model saw it (`fed`); the others are
    those of `invertgrad`.
    """
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts, rate=rate, only=only, without=without)
    return replace(searched, space=Viewed(inner=Pixels(start=start), reveal=reveal))


def learn_shift(
    *,
    limit: Limit = "hybrid",
    padding: Padding = "black",
    steps: int = 2400,
    tv: float = 1e-2,
    restarts: int | None = None,
    reveal: Reveal = "private",
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    begin: Begin = "spread",
    pace: float = PACE,
) -> Inversion:
    """invertgrad that learns a shift along with the picture."""
    reach = reach_of(limit)
    searched = invertgrad(steps=steps, tv=tv, restarts=restarts or len(starts(reach)), only=only, without=without)
    return learning(searched, Shifted(limit=reach, padding=padding, begin=begin, pace=pace), reveal)


shifted = Preset(
    learn_shift,
    f"Inverting Gradients that also learns an unknown shift of the picture, up to `limit`.\n{OPTIONS}",
    fixed=("begin", "pace"),
)
shifted_re_ats = Preset(
    learn_shift,
    "The learned shift as [Re] ATS ran it: gray border, starts unshifted, TV 1e-4, 4,800 steps, one start.\n" + OPTIONS,
    fixed=("begin", "pace", "padding"), padding="gray", begin="rest", pace=1.0, steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip


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
    """Inverting Gradients that also learns shift, rotation, shear, contrast and brightness; ranges as in ATS.

    `rotation`: largest angle in degrees; `shear`: largest slope; `scale`: largest factor of enlargement; `contrast`,
    `brightness`: largest change of the factor 1; the others are those of `shifted`.
    """
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
