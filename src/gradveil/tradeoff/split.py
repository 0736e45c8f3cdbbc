"""Whose pictures are whose in a study: the clients' own, those that the accuracy is measured on, and the victims.

A victim's pictures are a random sample of what one client trains on, from every client in turn; nothing is held back
from training. The gallery is other training pictures, and public are pictures of the validation set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil import data
from gradveil.audit.split import LARGEST_GALLERY, LARGEST_PUBLIC
from gradveil.config.schema import ScenarioConfig
from gradveil.core.check import options_of
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import DATASETS, Dataset
from gradveil.data.base import check_classes
from gradveil.data.draw import draw_rows
from gradveil.train.partition import partition
from gradveil.train.settings import Federation

EVERY = 5  # where a data set has no test split, every fifth picture validates


@dataclass(frozen=True, kw_only=True)
class StudySplit:
    """The data of a study. `dataset` is the training part, with the constants that models ask for."""

    dataset: Dataset
    validation: Batch

    @property
    def training(self) -> Batch:
        return Batch(self.dataset.images, self.dataset.targets)

    @property
    def public(self) -> Batch:
        return Batch(*(x[:LARGEST_PUBLIC] for x in self.validation))


@dataclass(frozen=True, kw_only=True)
class Victims:
    """Pictures [victim, example, ...], each with the name of the client who trains on them."""

    private: Batch
    names: tuple[str, ...]
    places: Tensor  # in the training pictures

    @property
    def rows(self) -> list[int]:
        """Of the training pictures, victim after victim."""
        return self.places.flatten().tolist()


def split_pictures(config: ScenarioConfig) -> StudySplit:
    """Training and validation pictures, by the data set's own split where it has one."""
    options, loader = dict(config.data_options), DATASETS.get(config.data)
    if loader is not None and "split" in options_of(loader):
        whole = data.load(config.data, **{**options, "split": "train"})
        other = data.load(config.data, **{**options, "split": "test"})
        check_classes(whole)
        return StudySplit(dataset=whole, validation=Batch(other.images, other.targets))
    whole = data.load(config.data, **options)
    check_classes(whole)
    validates = torch.arange(len(whole)) % EVERY == EVERY - 1
    if not validates.any():
        raise ConfigError(f"{len(whole)} pictures are too few to train on and to validate, use more", key="data")
    training = {"images": whole.images[~validates], "targets": whole.targets[~validates]}
    same = {name: getattr(whole, name) for name in ("name", "class_names", "mean", "std", "loss")}
    return StudySplit(
        dataset=Dataset(**training, **same), validation=Batch(whole.images[validates], whole.targets[validates])
    )


def choose_victims(split: StudySplit, federation: Federation, count: int, size: int) -> Victims:
    """`count` times `size` pictures of the clients' own, from every client in turn."""
    shares = partition(split.dataset.targets, federation)
    mixed = [
        share[draw_rows(len(share), Seed(federation.seed).at(name))]
        for name, share in zip(federation.names, shares, strict=True)
    ]
    found = dict(list(_deal(mixed, federation.names, size))[:count])
    if len(found) < count:
        raise ConfigError(
            f"must be at most {len(found)} (the victims with {size} pictures that the clients have), got {count}",
            key="images",
        )
    places = torch.stack(list(found.values()))
    private = Batch(split.dataset.images[places], split.dataset.targets[places])
    return Victims(private=private, names=tuple(found), places=places)


def choose_gallery(split: StudySplit, hidden: Sequence[Victims]) -> Batch:
    """Pictures that a victim is sought among, with their labels: no victim of any training."""
    others = torch.ones(len(split.dataset), dtype=torch.bool)
    for some in hidden:
        others[some.places.flatten()] = False
    if not others.any():
        raise ConfigError("every picture is a victim and none is left to compare with, use fewer", key="images")
    return Batch(*(x[others][:LARGEST_GALLERY] for x in split.training))


def _deal(shares: Sequence[Tensor], names: tuple[str, ...], size: int) -> Iterator[tuple[str, Tensor]]:
    """Some pictures of every client, then others of every client, as long as they last."""
    for turn in range(max(map(len, shares)) // size):
        for name, share in zip(names, shares, strict=True):
            if len(share) >= (turn + 1) * size:
                yield f"{name}.{turn}", share[turn * size : (turn + 1) * size]
