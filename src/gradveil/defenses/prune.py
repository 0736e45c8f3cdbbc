"""Gradient pruning (Zhu et al., 2019, section 5.2; a baseline in table 4 of ATS, Gao et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Kept, Law, Normal
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update

PAPER = Paper("Deep Leakage from Gradients", "Zhu et al.", 2019, "arXiv:1906.08935")


@dataclass(frozen=True, kw_only=True)
class Prune(Defense):
    """Sets the smallest numbers of every tensor to zero; `ratio` is their share.

    The count is exact, round(ratio * size): of equal magnitudes at the border the earlier positions go first.
    """

    stronger: ClassVar[tuple[str, ...]] = ("ratio",)
    strength: ClassVar[Strength | None] = Strength.by_rest("ratio", 4)

    ratio: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.ratio < 1:
            raise ConfigError(f"prune: ratio = {self.ratio} is out of range, take 0 <= ratio < 1")

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: zero_smallest(u, round(self.ratio * u.numel())) for name, u in update.items()}

    def censor(self, law: Law) -> Law | None:
        return Kept(law) if isinstance(law, Normal) else None

    def surrogate(self, seen: Update) -> Mask:
        """What was kept is plain to see: an informed attacker matches only that."""
        return Mask({name: u != 0 for name, u in seen.items()})


def zero_smallest(tensor: Tensor, count: int) -> Tensor:
    """The tensor without its `count` smallest magnitudes."""
    if count == 0:
        return tensor
    size = tensor.abs().flatten()
    border = smallest(size, count)
    below, equal = size < border, size == border
    cut = below | (equal & (equal.cumsum(0) <= count - below.sum()))
    return tensor.masked_fill(cut.view_as(tensor), 0.0)


def smallest(numbers: Tensor, place: int) -> Tensor:
    """The number at this place, from 1, in ascending order. quantile() refuses more than 16 million numbers."""
    if numbers.is_cuda:  # where kthvalue() has one block of threads for all of them, and sort() has many
        return numbers.sort().values[place - 1]
    return numbers.kthvalue(place).values


@dataclass(frozen=True, eq=False)
class Mask(Defense):
    """Multiplies the update by a mask: what an attacker knows of pruning."""

    kept: Mapping[str, Tensor]

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u * self.kept[name] for name, u in update.items()}
