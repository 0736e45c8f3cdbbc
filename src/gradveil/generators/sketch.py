"""An update as a few thousand numbers: every tensor as a direction, large ones count-sketched, and how long each is.

A count sketch (Charikar et al., 2002) deals the numbers of a tensor out over `width` sums, each with a sign of its own:
inner products stay what they were in the mean. Which number goes where follows from the tensor's name and size alone,
so that two processes agree without a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.core.types import Update

SHORTEST = 1e-30  # a tensor of zeros has no direction, and this length


@dataclass(frozen=True)
class Sketch:
    """How updates of one model are made shorter: tensors of more than `width` numbers become `width` sums."""

    width: int

    def __call__(self, update: Update) -> Tensor:
        """Updates [client, *parameter] to features [client, number]."""
        return torch.cat(list(self.parts(update)), 1)

    def parts(self, update: Update) -> Iterator[Tensor]:
        lengths = []
        for name, tensor in sorted(update.items()):
            flat = tensor.flatten(1)
            length = flat.norm(dim=1, keepdim=True)
            direction = flat / length.clamp_min(SHORTEST)
            count = min(flat.shape[1], self.width)
            yield count**0.5 * self.shorten(direction, name)  # numbers of size 1, which half precision holds
            lengths.append(length.clamp_min(SHORTEST).log())
        yield torch.cat(lengths, 1)

    def shorten(self, flat: Tensor, name: str) -> Tensor:
        """[client, number] to [client, width]; what is no longer stays as it is."""
        if flat.shape[1] <= self.width:
            return flat
        place, sign = (x.to(flat.device) for x in hashes(name, flat.shape[1], self.width))
        return flat.new_zeros(len(flat), self.width).index_add_(1, place, flat * sign)

    def count(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """How many features updates of these shapes have."""
        return sum(min(torch.Size(shape).numel(), self.width) + 1 for shape in shapes.values())


@lru_cache(maxsize=256)
def hashes(name: str, numbers: int, width: int) -> tuple[Tensor, Tensor]:
    """The sum that each number goes into, and its sign."""
    rng = Seed().at("sketch", name, numbers, width).rng()
    place = torch.randint(width, (numbers,), generator=rng)
    return place, 2.0 * torch.randint(2, (numbers,), generator=rng) - 1
