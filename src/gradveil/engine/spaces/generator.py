"""What a trained network can draw: a latent is searched for, and its picture is fed (ROG, Yue et al., 2023, eq. 13).

Any generator of `gradveil.generators` will do: an autoencoder's decoder, as in ROG's ablation, or a GAN.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, normal, uniform
from gradveil.core.types import Images, Latent
from gradveil.engine.spaces.bicubic import resizing
from gradveil.generators.conditional import Conditional
from gradveil.generators.generator import Generator

LatentStart = Literal["normal", "encoded"]


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The pictures of a generator, resized where the data has another size.

    Where the generator is told a class and the labels are known, it is told them and the noise alone is searched.
    `start` draws the latent, or encodes a picture of noise, as the paper does; a generator that encodes has `encode`.
    """

    generator: Generator
    start: LatentStart = "normal"
    file: str = ""  # that the generator was read from

    def __post_init__(self) -> None:
        if self.start == "encoded" and not callable(getattr(self.generator, "encode", None)):
            raise ConfigError("start = 'encoded': this generator cannot encode a picture, take 'normal'")

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundDecoded:
        like, size = next(iter(seen.update.values())), self.generator.size
        if size[0] != seen.shape[0]:
            raise NotApplicableError(
                f"the generator draws pictures of {size[0]} channels and these have {seen.shape[0]}, take another"
            )
        resized = zip(size[1:], seen.shape[1:], strict=True)
        rows, columns = (None if a == b else resizing(a, b).to(like) for a, b in resized)
        generator = copy_like(self.generator, like)
        return BoundDecoded(self, generator, seen.examples, like, rows, columns, embed_labels(generator, seen))


@dataclass(frozen=True)
class BoundDecoded:
    space: Decoded
    generator: Generator
    examples: int
    like: Tensor
    rows: Tensor | None
    columns: Tensor | None
    classes: Tensor | None = None  # [trial, example, number]: the part of the latent that is not searched

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        rng = seed.at("start", name, restart).rng()
        if self.space.start == "normal":
            first, *rest = self.generator.latent
            first -= 0 if self.classes is None else self.classes.shape[-1]
            return {"latent": normal((self.examples, first, *rest), rng, self.like)}
        noise = uniform((self.examples, *self.generator.size), rng, self.like)
        encode = cast(Callable[[Tensor], Tensor], getattr(self.generator, "encode"))  # noqa: B009
        with torch.no_grad():
            return {"latent": encode(noise)}

    def decode(self, z: Latent) -> Images:
        latent = z["latent"] if self.classes is None else torch.cat([z["latent"], self.classes], -1)
        pictures = self.generator(latent.flatten(0, 1)).unflatten(0, latent.shape[:2])
        if self.rows is not None:
            pictures = self.rows @ pictures
        return pictures if self.columns is None else pictures @ self.columns.mT

    def reveal(self, z: Latent) -> Images:
        with torch.no_grad():
            return self.decode(z)

    def smooth(self, z: Latent) -> Images:
        return self.decode(z)

    def constrain(self, z: Latent) -> Latent:
        return z


def embed_labels(generator: Generator, seen: Observation) -> Tensor | None:
    """The labels as a class-conditional generator takes them."""
    if not isinstance(generator, Conditional) or seen.labels is None:
        return None
    if generator.classes != seen.classes:
        raise NotApplicableError(
            f"the generator knows {generator.classes} classes and the model {seen.classes}, take one of the same data"
        )
    return generator.embed(seen.labels.flatten(0, 1)).unflatten(0, seen.labels.shape[:2])


def copy_like(generator: Generator, like: Tensor) -> Generator:
    """A copy where the update is, and in its precision."""
    if not isinstance(generator, nn.Module):
        return generator
    return cast(Generator, copy.deepcopy(generator).to(like.device, like.dtype).eval().requires_grad_(False))
