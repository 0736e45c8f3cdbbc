"""Adam+L2, which ATS (Gao et al., 2021) calls GI after GradInversion (Yin et al., 2021).

Differs from GradInversion, and so does ATS: no prior on normalization statistics, no group of runs that agree with each
other, and signed gradients. Ours divides the distance by the update's own size, so that one TV weight serves all
models, and tries several weights; `gradinversion-ats` is the plain sum with one.
"""

from __future__ import annotations

from functools import partial

from gradveil.attacks.invertgrad import OPTIONS, PARTS, search_pixels
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.distance import L2

PAPER = Paper("See through Gradients: Image Batch Recovery via GradInversion", "Yin et al.", 2021, "arXiv:2104.07586")

gradinversion = Preset(
    search_pixels, f"Inverting Gradients with the squared distance; tries every TV weight on every picture.\n{OPTIONS}",
    fixed=PARTS, distance=partial(L2, relative=True),
)  # fmt: skip
gradinversion_ats = Preset(
    search_pixels,
    "Adam+L2 as ATS ran it under the name GI: sum of squares, TV 1e-4, 4,800 steps, one start.\n\n"
    f"GradInversion's own strength, the prior on normalization statistics, is not in it.\n{OPTIONS}",
    fixed=PARTS, distance=L2, steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip
