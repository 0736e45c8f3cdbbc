"""Which encoding holds which picture, by labels and by how alike encodings look (Carlini et al., 2020).

A mixed label says how much of each class is in an encoding. Where a class has one picture, that is its weight. Where it
has several, its encodings are put into as many clusters, and the whole class weight goes to the one they fall in.

Then weights that fit the pictures and pictures that fit the weights are found by turns (`refine`): once there are
pictures, the encoding itself tells which of them, or which two and at what split, explain it best. Carlini et al.
solve once and halve instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import torch
from torch import Tensor

from gradveil.core.seeds import Seed

NOTHING = 1e-6  # of a label: rounding
STARTS, TURNS = 24, 20
SPLITS = (0.2, 0.35, 0.5, 0.65, 0.8)


def pictures_by_class(labels: Tensor, pictures: int) -> list[int]:
    """How many pictures each class has, by its share of all labels; their sum is `pictures`, labels [encoding, class].

    >>> pictures_by_class(torch.tensor([[0.5, 0.5, 0.0], [0.7, 0.3, 0.0]]), 3)
    [2, 1, 0]
    """
    mass = labels.sum(0).double()
    present = mass > NOTHING
    share = mass / mass.sum() * pictures
    counts = torch.where(present, share.floor().clamp_min(1), 0)
    while counts.sum() < pictures:
        counts[(share - counts).argmax()] += 1
    while counts.sum() > pictures:
        counts[torch.where(counts > 0, share - counts, torch.inf).argmin()] -= 1
    return [int(count) for count in counts]


def needs_similarity(labels: Tensor, pictures: int) -> bool:
    return max(pictures_by_class(labels, pictures)) > 1


def places_of(labels: Tensor, pictures: int) -> list[tuple[int, list[int]]]:
    """Every class that is there with the numbers of its pictures."""
    counts, first, places = pictures_by_class(labels, pictures), 0, []
    for kind, count in enumerate(counts):
        if count:
            places.append((kind, list(range(first, first + count))))
        first += count
    return places


def assign_weights(labels: Tensor, pictures: int, similarity: Tensor | None, seed: Seed) -> Tensor:
    """The weights that labels and clusters tell, [encoding, picture]."""
    weights = labels.new_zeros(len(labels), pictures)
    for kind, places in places_of(labels, pictures):
        mass = labels[:, kind]
        if len(places) == 1 or similarity is None:
            weights[:, places] = mass.unsqueeze(1) / len(places)
            continue
        members = (mass > NOTHING).nonzero().flatten()
        inside = cluster(similarity[members][:, members], len(places), seed.at("class", kind))
        weights[members, places[0] + inside] = mass[members]
    return weights


def cluster(similarity: Tensor, clusters: int, seed: Seed) -> Tensor:
    """The cluster of each, by its mean similarity to the others in it; of several starts the one that holds best."""
    count = len(similarity)
    alike = similarity.double().clone().fill_diagonal_(0)
    best, most = torch.zeros(count, dtype=torch.int64, device=alike.device), -torch.inf
    for start in range(STARTS):
        cores = torch.randperm(count, generator=seed.at(start).rng())[:clusters].to(alike.device)
        inside = alike.clone().fill_diagonal_(torch.inf)[:, cores].argmax(1)
        for _ in range(TURNS):
            moved = _closeness(alike, inside, clusters).argmax(1)
            if torch.equal(moved, inside):
                break
            inside = moved
        closeness = float(_closeness(alike, inside, clusters).gather(1, inside.unsqueeze(1)).sum())
        if closeness > most:
            best, most = inside, closeness
    return best


def _closeness(alike: Tensor, inside: Tensor, clusters: int) -> Tensor:
    """Mean similarity of each to the other members of each cluster, [one, cluster]."""
    member = torch.nn.functional.one_hot(inside, clusters).to(alike)
    return alike @ member / (member.sum(0) - member).clamp_min(1)


Solve = Callable[[Tensor], Tensor]


def refine(weights: Tensor, targets: Tensor, labels: Tensor, solve: Solve, flipped: bool, turns: int) -> Tensor:
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
