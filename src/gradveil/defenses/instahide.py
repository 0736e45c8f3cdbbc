"""InstaHide (Huang et al., 2020): pictures are mixed with others, then every pixel's sign is flipped at random.

Pixels have signs in [-1, 1], as in the authors' challenge; here pictures are in [0, 1], so x becomes 1 - x, a flip
about mid-gray, and encodings stay pictures. Differs from their training code, which flips about the mean color.
`cross` mixes two pictures of the client with k - 2 public ones, whose labels do not count: labels then sum to less than
1, as in their code.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.knowledge import Mixture
from gradveil.core.paper import Paper
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses._mixing import Mixing, Pairs, as_matrix, draw_inside, draw_weights, names_of, too_few

PAPER = Paper(
    "InstaHide: Instance-hiding Schemes for Private Distributed Learning", "Huang et al.", 2020, "arXiv:2010.02772"
)
PRIVATE = 2  # pictures of the client in a mixture with public ones
LEAST = 0.3  # of the mixture that they are together, from the authors' code
Partners = Literal["inside", "cross"]
Signs = Literal["fresh", "fixed", "none"]


def instahide(
    *,
    k: int = 4,
    bound: float = 0.65,
    partners: Partners = "inside",
    signs: Signs = "fresh",
    pairs: Pairs = "fresh",
    seed: int = 0,
) -> InstaHide:
    """Mixes every picture with `k` - 1 others, of the client or public ones, and flips the sign of pixels at random.

    `signs`: drawn anew in every round, `fixed` for every picture, or `none`, which is mixing alone; `pairs`: who is
    mixed with whom and how much of each, drawn anew in every round or `fixed`; `seed`: of what is fixed.
    """
    return InstaHide(k=k, bound=bound, partners=partners, signs=signs, pairs=pairs, seed=seed)


@dataclass(frozen=True, kw_only=True)
class InstaHide(Mixing):
    """The mixing, the flips, and the public pictures that `bind` finds in a scenario."""

    partners: Partners = "inside"
    signs: Signs = "fresh"
    pool: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def title(self) -> str:
        return "instahide"

    @property
    def flips(self) -> bool:
        return self.signs != "none"

    def own(self, count: int) -> int:
        """Pictures of the client in a mixture, if it has `count` in all."""
        return min(PRIVATE, self.k, count) if self.partners == "cross" else self.k

    def bind(self, scenario: Scenario) -> InstaHide:
        own = self._count_own(scenario.private.images.shape[1])
        if self.partners == "inside":
            return self
        there = 0 if scenario.public is None else len(scenario.public.images)
        if scenario.public is None or self.k - own > there:
            raise ConfigError(
                f"instahide: k = {self.k} needs {self.k - own} public pictures and there are {there}, "
                'ask for fewer images (scenario.images) or take partners = "inside"'
            )
        return replace(self, pool=scenario.public.images)

    def _count_own(self, count: int) -> int:
        if self.own(count) > count:
            raise too_few(self.title, self.k, count)
        return self.own(count)

    def draw(self, data: Batch, rng: Generator) -> Mixture:
        count = len(data.images)
        own = self._count_own(count)
        weights = draw_weights(count, self.k, self.bound, rng, LEAST if self.partners == "cross" else 0.0)
        selection = draw_inside(count, own, rng)
        if self.partners == "cross":
            public = len(self.public_pictures)
            others = torch.rand(count, public, generator=rng).argsort(1)[:, : self.k - own]
            selection = torch.cat([selection, count + others], 1)
        sources = len(self.sources(data))
        return Mixture(as_matrix(selection, weights, sources, data.images), flipped=self.flips)

    @property
    def public_pictures(self) -> Tensor:
        if self.pool is None:
            raise ConfigError('instahide: partners = "cross" has no public pictures yet, bind it to a scenario')
        return self.pool

    def sources(self, data: Batch) -> Tensor:
        if self.partners == "inside":
            return data.images
        return torch.cat([data.images, self.public_pictures.to(data.images)])

    def data(self, data: Batch, rng: Generator) -> Batch:
        images, labels = super().data(data, rng)
        if not self.flips:
            return Batch(images, labels)
        return Batch(torch.where(self._draw_flips(data.images, rng), 1 - images, images), labels)

    def _draw_flips(self, pictures: Tensor, rng: Generator) -> Tensor:
        """Which pixels are flipped."""
        if self.signs == "fresh":
            numbers = torch.rand(pictures.shape, generator=rng)
        else:
            streams = [Seed(self.seed).at("instahide", "signs", name) for name in names_of(pictures)]
            numbers = torch.stack([torch.rand(pictures.shape[1:], generator=one.rng()) for one in streams])
        return numbers.to(pictures.device) < 0.5
