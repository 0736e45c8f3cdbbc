"""One search for the pictures behind all rounds: the weights stand between the pictures and what was fed.

Whoever knows the weights need not decode encodings that were found one by one: pictures that explain all updates of a
client at once are far better determined than any one encoding. Not for flipped pixels, whose signs nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks.decoding.leak import side_by_side
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.types import Images
from gradveil.engine.backend import choose
from gradveil.engine.descent import Descent, Objective, best_of, eager
from gradveil.engine.inversion import Inversion
from gradveil.engine.matcher import Matcher
from gradveil.engine.spaces.space import Pixels


@dataclass(frozen=True)
class AllRounds:
    """The match of one client's pictures with all of its updates."""

    matcher: Matcher
    weights: Tensor  # [round, encoding, picture]
    offset: Tensor  # [round, encoding, channel, height, width]: what is public in the encodings

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        encodings = torch.einsum("res,schw->rechw", self.weights, fed[0]) + self.offset
        value, slope = self.matcher(encodings)
        back = torch.einsum("res,rechw->schw", self.weights, slope) / len(value)
        return value.mean(0, keepdim=True), back.unsqueeze(0)


@dataclass(frozen=True)
class Searched:
    images: Tensor  # [picture, channel, height, width]
    loss: Tensor
    backend: str
    fell_back: bool
    notes: tuple[str, ...]


def search_all_rounds(
    attack: Inversion, seen: Observation, labels: Tensor, mixed: list[Tensor], start: Tensor, compute: Compute
) -> Searched:
    """One client: from `start`, pictures in [0, 1], to those that explain all of its updates.

    `mixed`: weights of the pictures and what is public in each encoding, in [0, 1], by rounds as the labels are.
    """
    each = replace(side_by_side(seen), labels=labels)
    with compute.active():
        backend = choose(each, attack.distance, compute.backend)
        matcher = AllRounds(backend.matcher(each, attack.distance), *mixed)
        space = Pixels().bind(seen)
        priors = tuple(prior.bind(seen, torch.zeros(1, dtype=torch.int64)) for prior in attack.priors)
        descent = Descent(Objective(matcher, space, priors), attack.optimizer, attack.steps, attack.stop)
        end = descent.run({"pixels": ((start - space.mean) / space.std).unsqueeze(0)}, eager)
    loss = end["total"].masked_fill(end["broke"].isfinite(), torch.nan)
    return Searched(space.reveal(best_of(end))[0], loss[0], backend.name, backend.fell_back, backend.notes)
