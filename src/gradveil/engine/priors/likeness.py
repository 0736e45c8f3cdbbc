"""A prior that pulls pictures towards given ones, as far as these are believed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.engine.priors.prior import Penalty, Weight, dealt
from gradveil.engine.spaces.given_start import Pictures


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """Mean square of the difference from each client's given pictures."""

    pictures: Pictures
    weight: Weight

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        like = next(iter(seen.update.values()))
        weight = dealt(self.weight, restarts, like)
        target = torch.stack([self.pictures[name].to(like) for name in seen.names])
        return lambda pixels, fed: weight * (fed - target).square().flatten(1).mean(1)
