"""A search that starts where `april` would end if nothing disturbed the update (Lu et al., CVPR 2022, section 4).

Noise, pruning and rounding spoil the closed form, since its equations are nearly dependent: noise of 1e-4 on a small
vision transformer leaves 16 dB of 100. Damped equations lose less. Of several dampings the picture that explains the
update best is where Inverting Gradients begins. Differs from the paper, whose optimization adds the distance of the
position embedding's gradients and starts from noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks.april import ALONE, PAPER, Embedding, find_embedding
from gradveil.attacks.closed.replay import find_nothing, is_alone
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, PerClient
from gradveil.engine.distance import Cosine, Unmatched
from gradveil.engine.inversion import Inversion
from gradveil.engine.matcher import Loop, OneTrial
from gradveil.engine.spaces.given_start import GivenStart

DAMPINGS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)  # of the equations, in units of a slope's mean square
TV_WEIGHTS = (1e-3, 1e-2, 3e-2)
EXPLAINED = 1e-6  # 1 - cosine: a reading that is this close to the update received is kept as it is

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
        find_embedding(seen)
        if not is_alone(seen):
            return find_nothing(seen, ALONE)
        seen = seen.average_rounds()
        seen = replace(seen, labels=self.infer_labels(seen))
        start, match = read_damped(seen)
        space = GivenStart(pictures=dict(zip(seen.names, start, strict=True)))
        got = Inversion.reconstruct(replace(self, space=space), seen, seed, compute)
        exact = match < EXPLAINED  # there is nothing to search for
        images = torch.where(exact.view(-1, 1, 1, 1, 1), start, got.images)
        return replace(got, images=images, loss=torch.where(exact, match.to(got.loss), got.loss))


def read_damped(seen: Observation) -> tuple[Images, PerClient]:
    """For each client the reading, among those of all dampings, whose update is most like the one received.

    And how like: 1 - cosine.
    """
    embedding = find_embedding(seen)
    each = [read_one(embedding, seen.take([client])) for client in range(len(seen.names))]
    images, match = zip(*each, strict=True)
    return torch.cat(images), torch.stack(match)


def read_one(embedding: Embedding, seen: Observation) -> tuple[Images, Tensor]:
    """Alone, since the last digits of a solution depend on what is solved beside it, and signed steps on these."""
    readings = [embedding.inputs.invert(embedding.read(seen, damping)).unsqueeze(1) for damping in DAMPINGS]
    each = torch.stack([one.nan_to_num(0.5).clamp(0, 1) for one in readings])
    matcher = Loop(OneTrial.of(seen, Cosine()))
    match = torch.stack([matcher(pictures)[0][0] for pictures in each]).nan_to_num(torch.inf)
    best = int(match.argmin())
    return each[best], match[best]
