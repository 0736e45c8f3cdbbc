"""Pictures as they are fed to the model: the gallery put through the same defense, and what ties a fed picture to its
private one.

An update gives away what was fed. That counts against the defense only where the fed picture is still known as the
private one: a defense that feeds noise, gray or another picture gives its input away, and nobody.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.audit.plan import Cell
from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.metrics.nearest import blocks, copies
from gradveil.metrics.retrieval import detail
from gradveil.metrics.symmetric import ROUNDING as TIE
from gradveil.metrics.symmetric import SymmetricSearch, shrink

DRAWS = 8  # of the defense for every candidate
SIDE = 32  # pixels at which draws are compared
REMEMBERED = 2**27  # numbers of galleries as fed; bounds the memory, not the result
ROUNDING = 1e-9  # of squared lengths; what is nearer counts for the rival
View = Callable[[Tensor], Tensor]  # pictures as rows of numbers


@dataclass(frozen=True, eq=False)
class FedGallery:
    """A gallery through one defense. Without draws the defense is too slow for a gallery, which is then as it is."""

    plain: Tensor  # [other, channel, height, width]
    pictures: Tensor  # what reconstructions of fed pictures are compared with: every copy of one draw
    draws: tuple[Tensor, ...]  # each [other, copy, channel, height, width], shrunk
    search: SymmetricSearch
    links: dict[Any, Tensor] = field(default_factory=dict)  # what `link` has found before

    @property
    def size(self) -> int:
        """Numbers that it holds."""
        return self.pictures.numel() + sum(draw.numel() for draw in self.draws)

    @property
    def chance(self) -> float:
        """That a fed picture which tells nothing of the private one is linked to it: each search may be lucky."""
        return 1 - (1 - 1 / (len(self.plain) + 1)) ** (4 if self.draws else 3)


def feed(groups: Sequence[Batch], cell: Cell, seeds: Sequence[Seed]) -> Tensor:
    """Each client's pictures as its defense feeds them: [picture, copy, channel, height, width]."""
    defense = cell.defense.bind(cell.scenario)
    data = [defense.data(group, seed.at("data").rng()) for group, seed in zip(groups, seeds, strict=True)]
    size = cell.scenario.training.batch_size or len(groups[0].images)
    parts = [[len(some) for some in one.images.split(size)] for one in data]
    rngs = [seed.at("client", k).rng() for seed, own in zip(seeds, parts, strict=True) for k in range(len(own))]
    whole = Batch(*(torch.cat(each) for each in zip(*data, strict=True)))
    fed = defense.batches(whole, [count for own in parts for count in own], rngs).images
    return fed.unflatten(0, (sum(len(group.images) for group in groups), -1)).detach().float().cpu()


def fed_gallery(cell: Cell, gallery: Tensor) -> FedGallery:
    """Computed once in a process for every scenario and defense: it depends on neither attack nor clients."""
    key = _name(cell, gallery)
    if key not in _remembered:
        _remembered[key] = _feed_gallery(cell, gallery)
    _remembered.move_to_end(key)
    while len(_remembered) > 1 and sum(one.size for one in _remembered.values()) > REMEMBERED:
        _remembered.popitem(last=False)
    return _remembered[key]


def _feed_gallery(cell: Cell, gallery: Tensor) -> FedGallery:
    if cell.defense.slow_to_feed:
        return FedGallery(gallery, gallery, (), SymmetricSearch(gallery))
    groups = _Groups.of(gallery, cell)
    first = _draw(groups, cell, "gallery", 0)
    draws = [_shrink(first)]
    for number in range(1, DRAWS):
        draws.append(_shrink(_draw(groups, cell, "gallery", number)))
        if number == 1 and draws[0].equal(draws[1]):  # it draws nothing
            draws.pop()
            break
    return FedGallery(gallery, first.flatten(0, 1), tuple(draws), SymmetricSearch(gallery))


def _shrink(fed: Tensor) -> Tensor:
    return shrink(fed.flatten(0, 1), SIDE).unflatten(0, fed.shape[:2])


_remembered: OrderedDict[Any, FedGallery] = OrderedDict()


def _name(cell: Cell, gallery: Tensor) -> tuple[Any, ...]:
    """What the fed gallery is made of; a defense that cannot be pickled is itself alone."""
    try:
        defense: Any = blake2b(pickle.dumps(cell.defense)).digest()
    except Exception:
        defense = _Itself(cell.defense)
    scenario, images = cell.scenario, cell.scenario.private.images
    shape = tuple(images.shape[1:]), scenario.aggregate, scenario.training.batch_size, str(images.dtype)
    known = b"" if scenario.public is None else _digest(scenario.public.images)
    return scenario.name, cell.label, cell.seed, shape, _digest(gallery), known, defense


@dataclass(frozen=True)
class _Itself:
    """Equal to nothing but itself; holds what it is about, so that no other can take its address."""

    of: Defense

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def _digest(pictures: Tensor) -> bytes:
    return blake2b(pictures.detach().float().cpu().contiguous().numpy().tobytes(), digest_size=16).digest()


def _go_round(cell: Cell, count: int) -> Tensor:
    """Targets for pictures that have none: every class in turn, or those of the private pictures."""
    at = torch.arange(count)
    if cell.scenario.target.has_classes:
        return F.one_hot(at % cell.scenario.classes, cell.scenario.classes)
    known = cell.scenario.private.labels.flatten(0, 1)
    return known[at % len(known)]


@dataclass(frozen=True)
class _Groups:
    """Pictures in the portions that clients have. What the last one lacks is filled up, and cut off afterwards."""

    batches: list[Batch]
    names: list[str]
    count: int

    @classmethod
    def of(cls, gallery: Tensor, cell: Cell) -> _Groups:
        """Their labels go round: the gallery has none."""
        private, size = cell.scenario.private, _pictures_of_a_client(cell)
        groups = -(-len(gallery) // size)
        images = gallery[torch.arange(groups * size) % len(gallery)].to(private.images)
        labels = _go_round(cell, groups * size)
        batches = list(map(Batch, images.split(size), labels.to(private.labels).split(size)))
        return cls(batches, [str(group) for group in range(groups)], len(gallery))

    @classmethod
    def private(cls, cell: Cell) -> _Groups:
        images, labels = (x.flatten(0, 1) for x in cell.scenario.private)
        size = _pictures_of_a_client(cell)
        names = [f"{name}.{k}" for name in cell.scenario.names for k in range(cell.scenario.aggregate)]
        return cls(list(map(Batch, images.split(size), labels.split(size))), names, len(images))


def _pictures_of_a_client(cell: Cell) -> int:
    return cell.scenario.private.images.shape[1] // cell.scenario.aggregate


def _draw(groups: _Groups, cell: Cell, purpose: str, number: int) -> Tensor:
    """One draw of the defense for all of them."""
    seed = cell.seed.at("fed", purpose, cell.scenario.name, cell.label, number)
    return feed(groups.batches, cell, [seed.at(name) for name in groups.names])[: groups.count]


def link(cell: Cell, private: Tensor, fed: Tensor, among: FedGallery) -> Tensor:
    """1 where the fed picture finds its private one: [client, example]. `fed` is [client, example, copy, ...].

    By pixels, by detail, as the nearest under new draws of the defense, or under symmetries. Of several copies the best
    counts, for the original and for its rivals.
    """
    key = _digest(private), _digest(fed)
    if key not in among.links:
        among.links[key] = _link(cell, private.flatten(0, 1), fed.flatten(0, 1), among)
    return among.links[key].double().reshape(private.shape[:2])


def _link(cell: Cell, originals: Tensor, shown: Tensor, among: FedGallery) -> Tensor:
    others = ~copies(originals.flatten(1), among.plain.flatten(1))
    found = _by(lambda x: x.flatten(1), originals, shown, among, others)
    found |= _by(detail, originals, shown, among, others)
    if among.draws:
        own = [_shrink(_draw(_Groups.private(cell), cell, "private", k)) for k in range(len(among.draws))]
        found |= _by_draws(_shrink(shown), own, among, others)
    if not found.all():  # the slowest, for the rest
        alike = [among.search.compare(copy, originals[~found]) for copy in _each(shown[~found])]
        own, rival = (torch.stack(each).amax(0) for each in zip(*alike, strict=True))
        found[~found] = own > rival + TIE
    return found


def _by(view: View, originals: Tensor, shown: Tensor, among: FedGallery, others: Tensor) -> Tensor:
    here, there = view(originals), view(among.plain)
    own, rivals = zip(*(_distances(view(copy), here, there) for copy in _each(shown)), strict=True)
    return _is_first(own, [distance.where(others, torch.inf) for distance in rivals])


def _by_draws(shown: Tensor, own: Sequence[Tensor], among: FedGallery, others: Tensor) -> Tensor:
    """Whether a new draw of the original is nearer than all draws of all others."""
    near, far = [], []
    for copy in _each(shown):
        guess = copy.flatten(1)
        for mine, theirs in zip(own, among.draws, strict=True):
            for a, b in zip(_each(mine), _each(theirs), strict=True):
                one, rivals = _distances(guess, a.flatten(1), b.flatten(1))
                near.append(one)
                far.append(rivals.where(others, torch.inf))
    return _is_first(near, far)


def _each(copies: Tensor) -> list[Tensor]:
    """Of [picture, copy, ...] the first copies, the second ones, ..."""
    return list(copies.unbind(1))


def _distances(guess: Tensor, original: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Squared, to the original [picture] and to the gallery [picture, other]; too small for the gallery by rounding."""
    guess, original = guess.double(), original.double()
    length = guess.square().sum(1)[:, None]
    rival = []
    for some in blocks(gallery):
        both = length + some.square().sum(1)
        rival.append(both - 2 * guess @ some.T - ROUNDING * both)
    return (guess - original).square().sum(1), torch.cat(rival, 1)


def _is_first(own: Sequence[Tensor], rivals: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(own)).amin(0) < torch.stack([one.amin(1) for one in rivals]).amin(0)
