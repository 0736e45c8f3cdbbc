"""Adam+L1, the variant of Inverting Gradients with the L1 distance that ATS (Gao et al., 2021) compares.

Ours divides the distance by the update's own size, so that one TV weight serves all models, and tries several weights;
`adam-l1-ats` is the plain sum with one. L1 compares lengths: scaling an update blinds it where the cosine notices
nothing.
"""

from __future__ import annotations

from functools import partial

from gradveil.attacks.invertgrad import OPTIONS, PARTS, search_pixels
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import L1

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)
TV_WEIGHTS = (1e-3, 1e-2, 1e-1, 3e-1, 1.0)  # ten times those of the cosine: a relative L1 is about as much larger

adam_l1 = Preset(
    search_pixels, f"Inverting Gradients with the L1 distance; tries every TV weight on every picture.\n{OPTIONS}",
    fixed=PARTS, distance=partial(L1, relative=True), tv=TV_WEIGHTS,
)  # fmt: skip
adam_l1_ats = Preset(
    search_pixels,
    "Adam+L1 as ATS ran it: sum of absolute differences, TV 1e-4, 4,800 steps, one start.\n\n"
    f"Beside a sum over all numbers of an update, a TV weight of 1e-4 has almost no effect.\n{OPTIONS}",
    fixed=PARTS, distance=L1, steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip
