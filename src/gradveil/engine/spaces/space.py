"""A space is what a search changes; the plainest is the pixels. A latent has a leading trial axis; methods take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, normal, uniform
from gradveil.core.types import Images, Latent
from gradveil.models.normalize import constants_of

Start = Literal["normal", "uniform", "gray", "black"]
APART = 1e-2  # in [0, 1]: pictures of one label that start equal get equal gradients, and stay equal to the end
Reveal = Literal["private", "fed"]  # a transformed picture is reported as it was before, or as the model saw it


class Space(Protocol):
    """From a latent to pictures and back into its box. `bind` reads what it needs off the observation, once.

    `seen` has one client per trial; `restarts` numbers the trials of one client, where they differ in more than starts.
    """

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundSpace: ...


class BoundSpace(Protocol):
    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        """The start of one trial, without the trial axis."""
        ...

    def decode(self, z: Latent) -> Images:
        """Pictures in [0, 1] as fed to the model."""
        ...

    def reveal(self, z: Latent) -> Images:
        """Pictures in [0, 1] as reported."""
        ...

    def smooth(self, z: Latent) -> Images:
        """Pictures as the image priors see them: the papers take TV of normalized pixels."""
        ...

    def constrain(self, z: Latent) -> Latent:
        """Back into the box, after every step."""
        ...


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """The pictures themselves; with `normalized`, in the units of the model's first layer, as the papers do."""

    start: Start = "normal"
    normalized: bool = True
    boxed: bool = True

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundPixels:
        like = next(iter(seen.update.values()))
        mean, std = constants_of(seen.model, seen.shape[0]) if self.normalized else (0.0, 1.0)
        shape = (-1, 1, 1)
        mean = torch.as_tensor(mean).to(like).expand(seen.shape[0]).reshape(shape)
        std = torch.as_tensor(std).to(like).expand(seen.shape[0]).reshape(shape)
        return BoundPixels(self, (seen.examples, *seen.shape), mean, std)


@dataclass(frozen=True)
class BoundPixels:
    space: Pixels
    shape: tuple[int, ...]
    mean: Tensor
    std: Tensor

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        rng = seed.at("start", name, restart).rng()
        if self.space.start == "normal":
            return {"pixels": normal(self.shape, rng, self.mean)}
        if self.space.start == "uniform":
            return {"pixels": (uniform(self.shape, rng, self.mean) - self.mean) / self.std}
        flat = torch.full(self.shape, 0.5 if self.space.start == "gray" else 0.0).to(self.mean)
        if self.shape[0] > 1:
            flat = flat + APART * uniform(self.shape, rng, self.mean)
        return {"pixels": (flat - self.mean) / self.std}

    def encode(self, images: Images) -> Latent:
        """The point that is decoded to these pictures."""
        return {"pixels": (images - self.mean) / self.std}

    def decode(self, z: Latent) -> Images:
        return z["pixels"] * self.std + self.mean

    def reveal(self, z: Latent) -> Images:
        return self.decode(z).clamp(0, 1)

    def smooth(self, z: Latent) -> Images:
        return z["pixels"]

    def constrain(self, z: Latent) -> Latent:
        if not self.space.boxed:
            return z
        low, high = (0 - self.mean) / self.std, (1 - self.mean) / self.std
        return {"pixels": torch.maximum(torch.minimum(z["pixels"], high), low)}
