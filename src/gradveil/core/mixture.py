"""What a client mixed: the secret of Mixup and InstaHide, and what an attacker is granted who is said to know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mixture:
    """How much of each source went into each encoding: the client's own pictures first, then the public ones."""

    weights: Tensor  # [*client, encoding, source]
    flipped: bool  # whether pixels were flipped about mid-gray afterwards, nobody knows which
    fixed: bool = False  # whether every round has these weights

    def take(self, at: Tensor) -> Mixture:
        return replace(self, weights=self.weights[at])

    @classmethod
    def of_clients(cls, each: Sequence[Mixture]) -> Mixture:
        return replace(each[0], weights=torch.stack([one.weights for one in each]))
