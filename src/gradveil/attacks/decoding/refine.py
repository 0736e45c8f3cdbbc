"""Weights that fit the pictures found, and pictures that fit the weights, by turns.

Clusters put an encoding's whole share of a class on one picture. Once there are pictures, the encoding itself tells
which of them, or which two and at what split, explain it best. Carlini et al. (2020) solve once and halve instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import torch
from torch import Tensor

from gradveil.attacks.decoding.clusters import NOTHING, places_of

SPLITS = (0.2, 0.35, 0.5, 0.65, 0.8)
Solve = Callable[[Tensor], Tensor]


def refined(weights: Tensor, targets: Tensor, labels: Tensor, solve: Solve, flipped: bool, turns: int) -> Tensor:
    """`targets` are the encodings in [-1, 1], or their sizes, [encoding, pixel]; `solve` finds pictures for weights."""
    several = [(kind, places) for kind, places in places_of(labels, weights.shape[1]) if len(places) > 1]
    for _ in range(turns if several else 0):
        pictures, before = solve(weights), weights
        for kind, places in several:
            weights = _best_shares(weights, pictures, targets, labels[:, kind], places, flipped)
        if torch.equal(weights, before):
            break
    return weights


def _best_shares(
    weights: Tensor, pictures: Tensor, targets: Tensor, mass: Tensor, places: list[int], flipped: bool
) -> Tensor:
    """Every encoding's share of one class on the pictures of that class that explain the encoding best."""
    best, least = weights, weights.new_full((len(weights),), torch.inf)
    for share in _shares(len(places)):
        tried = weights.clone()
        tried[:, places] = mass.unsqueeze(1) * torch.tensor(share).to(weights)
        given = tried @ pictures
        left = ((given.abs() if flipped else given) - targets).square().sum(1)
        better = (left < least) & (mass > NOTHING)
        best, least = torch.where(better.unsqueeze(1), tried, best), torch.where(better, left, least)
    return best


def _shares(count: int) -> Iterator[list[float]]:
    """All of it on one picture, or on two at several splits."""
    for one in range(count):
        yield [float(place == one) for place in range(count)]
    for one, other in combinations(range(count), 2):
        for split in SPLITS:
            yield [split if place == one else 1 - split if place == other else 0.0 for place in range(count)]
