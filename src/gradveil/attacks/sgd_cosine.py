"""SGD+Cosine, the variant of Inverting Gradients with momentum descent that ATS (Gao et al., 2021) compares.

Ours tries several TV weights, as `invertgrad` does; `sgd-cosine-ats` has the one of ATS.
"""

from __future__ import annotations

from gradveil.attacks.invertgrad import OPTIONS, PARTS, search_pixels
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.engine.optimizer import Sgd

PAPER = Paper(
    "Privacy-Preserving Collaborative Learning with Automatic Transformation Search",
    "Gao et al.",
    2021,
    "arXiv:2011.12505",
)

sgd_cosine = Preset(
    search_pixels,
    f"Inverting Gradients with Nesterov momentum in place of Adam; tries every TV weight on every picture.\n{OPTIONS}",
    fixed=PARTS, optimizer=Sgd, rate=0.01,
)  # fmt: skip
sgd_cosine_ats = Preset(
    sgd_cosine,
    "SGD+Cosine as ATS ran it: TV 1e-4, 4,800 steps, one start.\n\n"
    f"Its configuration says a rate of 0.1, its code takes 0.01; so does this.\n{OPTIONS}",
    steps=4800, tv=1e-4, restarts=1,
)  # fmt: skip
