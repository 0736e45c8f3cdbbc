"""Who is who in a search: the pictures that are scored, those that are attacked, and those that a model is trained on.

The first pictures are attacked, as an audit would, and scored are the last ones: what a search has seen is not what
its policies are confirmed on. The semi-trained model sees neither.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil import data
from gradveil.audit.split import LARGEST_GALLERY
from gradveil.config.schema import ScenarioConfig
from gradveil.core.check import options_of
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import DATASETS, Dataset
from gradveil.search.accuracy import accuracy_rounds

OFFERED = 100  # pictures of a round of the accuracy score, of which one per class is kept


@dataclass(frozen=True, kw_only=True)
class SearchSplit:
    """Pictures [n, c, h, w] with labels [n, class]. `places` are their numbers in the data set, which name them."""

    scored: Batch
    places: tuple[int, ...]
    attacked: Batch
    gallery: Tensor
    rounds: tuple[tuple[Batch, tuple[int, ...]], ...]  # of the accuracy score: one picture per class, and their numbers
    training: Batch  # of the semi-trained model


def split_pictures(
    config: ScenarioConfig, dataset: Dataset, *, images: int, attacked: int, rounds: int, share: float, seed: Seed
) -> SearchSplit:
    """Disjoint parts of a data set; training pictures come from its training split where it has one."""
    check_labels(dataset)
    total = len(dataset)
    if total < images + attacked + 1:
        raise ConfigError(
            f"{images} pictures to score, {attacked} to attack and others to compare with are more than the {total} "
            f"pictures of {dataset.name}, use fewer",
            key="images",
        )
    backwards = evenly(dataset.targets.flip(0))
    free = [total - 1 - place for place in backwards if total - 1 - place >= attacked]
    scored, rest = free[:images], sorted(free[images:])
    return SearchSplit(
        scored=_take(dataset, scored),
        places=tuple(scored),
        attacked=_take(dataset, range(attacked)),
        gallery=dataset.images[rest[:LARGEST_GALLERY]],
        rounds=_rounds(dataset, free, rounds, seed),
        training=_training(config, dataset, rest, share),
    )


def check_labels(dataset: Dataset) -> None:
    """The gradients of several labels at once have no score in ATS."""
    if not bool(((dataset.targets == 0) | (dataset.targets == 1)).all() & (dataset.targets.sum(1) == 1).all()):
        raise ConfigError(
            f"{dataset.name} has pictures of several classes or none, a search needs one class each", key="data"
        )


def evenly(targets: Tensor) -> list[int]:
    """All places, the first picture of every class first, then the second of every class, and so on."""
    seen: dict[int, int] = {}
    turn: list[tuple[int, int]] = []
    for place, label in enumerate(targets.argmax(1).tolist()):
        turn.append((seen.setdefault(label, 0), place))
        seen[label] += 1
    return [place for _, place in sorted(turn)]


def _rounds(dataset: Dataset, free: list[int], rounds: int, seed: Seed) -> tuple[tuple[Batch, tuple[int, ...]], ...]:
    """One picture of each class that is among a hundred, as in the authors' code."""
    picked = accuracy_rounds(dataset.targets[free], rounds, min(OFFERED, len(free)), seed, distinct_labels=True)
    places = [tuple(free[i] for i in some.tolist()) for some in picked]
    return tuple((_take(dataset, some), some) for some in places)


def _training(config: ScenarioConfig, dataset: Dataset, rest: list[int], share: float) -> Batch:
    """A tenth of the training split, or of what is left where there is none; nothing if nothing is asked for."""
    if not share:
        return _take(dataset, [])
    loader = DATASETS.get(config.data)
    options = dict(config.data_options)
    if loader is not None and "split" in options_of(loader) and options.get("split") != "train":
        whole = data.load(config.data, **{**options, "split": "train"})
        places = evenly(whole.targets)
    else:
        whole, places = dataset, [rest[i] for i in evenly(dataset.targets[rest])]
    return _take(whole, places[: max(1, round(share * len(places)))])


def _take(dataset: Dataset, places: tuple[int, ...] | list[int] | range) -> Batch:
    at = torch.as_tensor(list(places), dtype=torch.long)
    return Batch(dataset.images[at], dataset.targets[at])
