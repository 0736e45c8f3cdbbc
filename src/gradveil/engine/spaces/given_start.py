"""Pixels that start at given pictures: what another attack has drawn is where the search begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Latent
from gradveil.engine.spaces.space import BoundPixels, Pixels

Pictures = Mapping[str, Tensor]  # by client, each [example, channel, height, width] in [0, 1]


@dataclass(frozen=True, kw_only=True)
class GivenStart:
    """The pixels themselves, from the pictures of each client; every restart starts there."""

    pictures: Pictures

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundGivenStart:
        plain = Pixels().bind(seen, restarts)
        return BoundGivenStart(plain.space, plain.shape, plain.mean, plain.std, self.pictures)


@dataclass(frozen=True)
class BoundGivenStart(BoundPixels):
    pictures: Pictures

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        return {"pixels": (self.pictures[name].to(self.mean) - self.mean) / self.std}
