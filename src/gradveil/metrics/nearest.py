"""Who is nearer to a reconstruction than the original: counted for many at once, and never wrong by rounding."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

NUMBERS_AT_ONCE = 2**22  # of the gallery; bounds the memory, not the result
ROUNDING = 1e-9  # of the squared lengths: a distance from a matrix product is surer than this in float64
PAIRS_AT_ONCE = 256

Rows = Float[Tensor, "row number"]


def rivals_ahead(guess: Rows, original: Rows, gallery: Float[Tensor, "other number"]) -> Float[Tensor, " row"]:
    """How many of the gallery are at least as near to the guess as its original is; copies of the original not counted.

    Distances come from matrix products; where rounding could decide, the pair is compared number by number. A guess
    that is not a number has no neighbors: NaN.
    """
    guess, original = guess.double(), original.double()
    own = (guess - original).square().sum(1)
    ahead = torch.zeros_like(own)
    for others in blocks(gallery):
        rough = _squared_distances(guess, others)
        unsure = (rough - own[:, None]).abs() <= _slack(guess, others) + ROUNDING * own[:, None]
        ahead += ((rough < own[:, None]) & ~unsure).sum(1)
        for rows, columns in _pairs(unsure):
            one, rival = guess[rows], others[columns]
            nearer = (one - rival).square().sum(1) <= own[rows]
            is_other = (rival != original[rows]).any(1)
            ahead.index_add_(0, rows, (nearer & is_other).to(ahead))
    return torch.where(own.isnan(), own, ahead)


def copies(original: Rows, gallery: Float[Tensor, "other number"]) -> Tensor:
    """Which pictures of the gallery are the original itself: [row, other]."""
    original, found = original.double(), []
    for others in blocks(gallery):
        near = _squared_distances(original, others) <= _slack(original, others)
        for rows, columns in list(_pairs(near)):
            near[rows, columns] = (original[rows] == others[columns]).all(1)
        found.append(near)
    return torch.cat(found, 1)


def blocks(gallery: Tensor) -> Iterator[Tensor]:
    """Some rows at a time, in float64."""
    for some in gallery.split(max(1, NUMBERS_AT_ONCE // max(gallery.shape[1], 1))):
        yield some.double()


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T


def _slack(x: Tensor, y: Tensor) -> Tensor:
    return ROUNDING * (x.square().sum(1)[:, None] + y.square().sum(1))


def _pairs(where: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for some in where.nonzero().split(PAIRS_AT_ONCE):
        if len(some):
            yield some[:, 0], some[:, 1]
