"""A space whose search goes on from pictures that are there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Latent
from gradveil.engine.spaces.bicubic import Bicubic, BoundBicubic
from gradveil.engine.spaces.space import BoundPixels, Pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class Started:
    """Another space, from given pictures on: for each client [restart, example, channel, height, width] in [0, 1]."""

    inner: Pixels | Bicubic
    pictures: Mapping[str, Tensor]

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundStarted:
        return BoundStarted(self.inner.bind(seen, restarts), self.pictures)


@dataclass(frozen=True, eq=False)
class BoundStarted:
    inner: BoundPixels | BoundBicubic
    pictures: Mapping[str, Tensor]

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        return self.inner.encode(self.pictures[name][restart])

    def decode(self, z: Latent) -> Images:
        return self.inner.decode(z)

    def reveal(self, z: Latent) -> Images:
        return self.inner.reveal(z)

    def smooth(self, z: Latent) -> Images:
        return self.inner.smooth(z)

    def constrain(self, z: Latent) -> Latent:
        return self.inner.constrain(z)
