"""A search that starts where `april` would end if nothing disturbed the update (Lu et al., CVPR 2022, section 4).

Noise, pruning and rounding spoil the closed form, since its equations are nearly dependent: noise of 1e-4 on a small
vision transformer leaves 16 dB of 100. Damped equations lose less. Of several dampings the picture that explains the
update best is where Inverting Gradients begins. Differs from the paper, whose optimization adds the distance of the
position embedding's gradients and starts from noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gradveil.attacks.april import ALONE, PAPER, find_embedding
from gradveil.attacks.closed.replay import is_alone
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images
from gradveil.engine.distance import Cosine, Unmatched
from gradveil.engine.inversion import Inversion
from gradveil.engine.matcher import Loop, OneTrial
from gradveil.engine.spaces.given_start import GivenStart

DAMPINGS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)  # of the equations, in units of a slope's mean square
TV_WEIGHTS = (1e-3, 1e-2, 3e-2)

__all__ = ["PAPER", "AprilSearch", "april_search"]


def april_search(
    *,
    steps: int = 2400,
    tv: tuple[float, ...] | float = TV_WEIGHTS,
    rate: float = 0.02,
) -> AprilSearch:
    """Inverting Gradients from what `april` reads of a disturbed update; for vision transformers, one picture.

    `steps`: steps per start; `tv`: weight of total variation, or several of which every picture gets each; `rate`:
    length of the first steps, shorter than those of a search that starts from noise.
    """
    searched = invertgrad(steps=steps, tv=tv, rate=rate)
    return AprilSearch(**{name: getattr(searched, name) for name in searched.__dataclass_fields__})


@dataclass(frozen=True, kw_only=True)
class AprilSearch(Inversion):
    """A search from the damped closed form; labels are told, or read off beforehand."""

    def check(self, seen: Observation) -> None:
        if not is_alone(seen):
            raise NotApplicableError(ALONE, key="april-search")
        find_embedding(seen)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        if isinstance(self.distance, Unmatched):
            return super().reconstruct(seen, seed, compute)
        self.check(seen)
        seen = seen.average_rounds()
        seen = replace(seen, labels=self.infer_labels(seen))
        start = dict(zip(seen.names, read_damped(seen), strict=True))
        return Inversion.reconstruct(replace(self, space=GivenStart(pictures=start)), seen, seed, compute)


def read_damped(seen: Observation) -> Images:
    """For each client the reading, among those of all dampings, whose update is most like the one received."""
    embedding, matcher = find_embedding(seen), Loop(OneTrial.of(seen, Cosine()))
    readings = [embedding.inputs.invert(embedding.read(seen, damping)).unsqueeze(1) for damping in DAMPINGS]
    each = torch.stack([one.nan_to_num(0.5).clamp(0, 1) for one in readings])
    match = torch.stack([matcher(pictures)[0] for pictures in each])
    return each[match.nan_to_num(torch.inf).argmin(0), torch.arange(each.shape[1], device=each.device)]
