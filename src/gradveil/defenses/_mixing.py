"""Mixing of pictures, which Mixup and InstaHide (Huang et al., 2020) share: who is mixed with whom, how much of each.

Weights are |normal numbers| divided by their sum, drawn again until none is above the bound, as in InstaHide's code.
Differs: the pictures of one mixture are distinct, where the code may draw one of them twice.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.knowledge import Knowledge, Mixture
from gradveil.core.seeds import Seed
from gradveil.core.strength import Strength
from gradveil.core.types import Batch, Update

MARGIN = 0.1  # of the bound above 1 / k: with less, next to no draw is kept
AT_ONCE = 256
Pairs = Literal["fresh", "fixed"]


@dataclass(frozen=True, kw_only=True)
class Mixing(Defense):
    """Every picture becomes a mixture of itself and others, and its label the same mixture of their labels.

    `pairs`: who is mixed with whom and how much of each, `fresh` in every round or `fixed` by `seed` and the pictures,
    in whatever order they come.
    """

    strength: ClassVar[Strength | None] = Strength("k", (2, 3, 4, 6, 8))

    k: int = 4
    bound: float = 0.65
    pairs: Pairs = "fresh"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"{self.title}: k = {self.k} mixes nothing, take k >= 1")
        if self.k > 1 and not 1 / self.k + MARGIN <= self.bound <= 1:
            least = 1 / self.k + MARGIN
            raise ConfigError(
                f"{self.title}: bound = {self.bound} leaves no room for {self.k} weights that sum to 1, "
                f"take one from {least:.2f} to 1"
            )

    @property
    @abstractmethod
    def title(self) -> str:
        """Its name in the catalogue, for messages."""

    @abstractmethod
    def draw(self, data: Batch, rng: Generator) -> Mixture:
        """The weights of one client's encodings."""

    @abstractmethod
    def sources(self, data: Batch) -> Tensor:
        """The pictures that the weights speak of."""

    @property
    def flips(self) -> bool:
        """Whether pixels are flipped about mid-gray afterwards."""
        return False

    def knowledge(self) -> Knowledge:
        return Knowledge(mixes=True, decoders=("decode-known",))

    def mixture(self, data: Batch, rng: Generator) -> Mixture:
        return self.draw(data, rng) if self.pairs == "fresh" else self.draw_once(data)

    def draw_once(self, data: Batch) -> Mixture:
        """The same for the same pictures: drawn in the order of their names, then put into the order that they have."""
        names, count = names_of(data.images), len(data.images)
        order = sorted(range(count), key=names.__getitem__)
        stream = Seed(self.seed).at(self.title, "pairs", *(names[place] for place in order))
        drawn = self.draw(Batch(*(x[order] for x in data)), stream.rng())
        back = torch.tensor(order).argsort().to(data.images.device)
        own, public = drawn.weights[back].split([count, drawn.weights.shape[1] - count], 1)
        return replace(drawn, weights=torch.cat([own[:, back], public], 1), fixed=True)

    def data(self, data: Batch, rng: Generator) -> Batch:
        drawn = self.mixture(data, rng)
        own = drawn.weights[:, : len(data.labels)]  # public pictures bring no label
        return Batch(mix(drawn.weights, self.sources(data)), torch.tensordot(own, data.labels, 1))

    def surrogate(self, seen: Update) -> Defense:
        """None: the update is that of the encodings, which a search finds as it would find pictures. They are decoded
        afterwards, see `decode-known`."""
        return Defense()


def mixing_in(defense: Defense | None) -> Mixing:
    """The mixing that a known defense is, or that a stack has in it."""
    for part in () if defense is None else defense.parts:
        if isinstance(part, Mixing):
            return part
    raise NotApplicableError("decoding: the defense mixes no pictures, take another attack")


def names_of(pictures: Tensor) -> list[str]:
    """What every picture is known by in all rounds: a digest of its 256 levels."""
    levels = (255 * pictures).round().to(torch.uint8).cpu().numpy()
    return [blake2b(picture.tobytes(), digest_size=16).hexdigest() for picture in levels]


def mix(weights: Tensor, sources: Tensor) -> Tensor:
    return torch.einsum("es,schw->echw", weights, sources)


def draw_weights(rows: int, k: int, bound: float, rng: Generator, least: float = 0.0) -> Tensor:
    """Positive weights that sum to 1, none above `bound`, the first two together not below `least`; [row, k]."""
    if k == 1:
        return torch.ones(rows, 1, dtype=torch.float64)
    kept = torch.empty(0, k, dtype=torch.float64)
    while len(kept) < rows:
        sizes = torch.randn(AT_ONCE, k, generator=rng, dtype=torch.float64).abs()
        weights = sizes / sizes.sum(1, keepdim=True)
        allowed = (weights.amax(1) <= bound) & (weights[:, :2].sum(1) >= least)
        kept = torch.cat([kept, weights[allowed]])
    return kept[:rows]


def draw_inside(count: int, k: int, rng: Generator) -> Tensor:
    """For every picture itself and k - 1 others, distinct; [picture, k]."""
    return torch.rand(count, count, generator=rng).fill_diagonal_(-1).argsort(1)[:, :k]


def as_matrix(selection: Tensor, weights: Tensor, sources: int, like: Tensor) -> Tensor:
    """[encoding, source], on the device and in the precision of the pictures."""
    return torch.zeros(len(selection), sources, dtype=weights.dtype).scatter_(1, selection, weights).to(like)


def too_few(title: str, k: int, there: int) -> ConfigError:
    return ConfigError(
        f"{title}: k = {k} is more than the {there} pictures of a client, take k <= {there} or a larger `batch_size`"
    )
