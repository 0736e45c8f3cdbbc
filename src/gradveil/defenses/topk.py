"""Top-k sparsification (Aji and Heafield, 2017; example 3 of ROG, Yue et al., 2023, which keeps 5 %).

Differs from ROG's code, whose strict comparison drops the k-th number and all its equals: exactly k are kept here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Kept, Law, Normal
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update
from gradveil.defenses.prune import Mask, zero_smallest

PAPER = Paper("Sparse Communication for Distributed Gradient Descent", "Aji and Heafield", 2017, "arXiv:1704.05021")
SPARSITY = 0.95


@dataclass(frozen=True, kw_only=True)
class TopK(Defense):
    """Sends only the largest numbers, of the update or of every tensor (`scope`); `sparsity` is the share left out.

    `keep` says the same the other way round. The count is ceil(share * size); of equal magnitudes the later are kept.
    """

    stronger: ClassVar[tuple[str, ...]] = ("sparsity",)
    strength: ClassVar[Strength | None] = Strength.by_rest("sparsity", 4)

    sparsity: float = SPARSITY
    keep: float | None = None
    scope: Literal["update", "tensor"] = "update"

    def __post_init__(self) -> None:
        if not 0 <= self.sparsity < 1:
            raise ConfigError(f"topk: sparsity = {self.sparsity} is out of range, take 0 <= sparsity < 1")
        if self.keep is not None and not 0 < self.keep <= 1:
            raise ConfigError(f"topk: keep = {self.keep} is out of range, take 0 < keep <= 1")
        if self.keep is not None and self.sparsity != SPARSITY:
            raise ConfigError("topk: keep and sparsity say the same thing, give one of them")
        if self.scope not in ("update", "tensor"):
            raise ConfigError(f"topk: scope = {self.scope!r} is unknown, take 'update' or 'tensor'")

    def count_kept(self, size: int) -> int:
        share = 1 - self.sparsity if self.keep is None else self.keep
        return min(size, math.ceil(round(share * size, 6)))  # 0.05 * 100 is a little more than 5

    def update(self, update: Update, rng: Generator) -> Update:
        if self.scope == "tensor":
            return {name: zero_smallest(u, u.numel() - self.count_kept(u.numel())) for name, u in update.items()}
        flat = torch.cat([u.flatten() for u in update.values()])
        parts = zero_smallest(flat, flat.numel() - self.count_kept(flat.numel())).split(
            [u.numel() for u in update.values()]
        )
        return {name: part.view_as(u) for (name, u), part in zip(update.items(), parts, strict=True)}

    def censor(self, law: Law) -> Law | None:
        return Kept(law) if isinstance(law, Normal) else None

    def surrogate(self, seen: Update) -> Mask:
        """What was kept is plain to see: an informed attacker matches only that."""
        return Mask({name: u != 0 for name, u in seen.items()})
