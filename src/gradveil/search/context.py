"""A search with its data and models at hand, and which pictures are scored, attacked and trained on.

A random sample is attacked, as in an audit with the same seed, and of the others the last ones are scored: a policy is
not confirmed on pictures that the search has seen. The semi-trained model sees neither.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil import data
from gradveil.audit.split import LARGEST_GALLERY
from gradveil.config.build import model_of
from gradveil.config.schema import ScenarioConfig
from gradveil.core.check import options_of
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.files import slug
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import DATASETS, Dataset
from gradveil.data.base import check_classes
from gradveil.data.draw import draw_rows
from gradveil.experiment.progress import Progress
from gradveil.search.accuracy import accuracy_rounds
from gradveil.search.policies import candidates, distinct
from gradveil.search.privacy import PRIVACY_SCORES
from gradveil.search.scoring import Scorer, draw_circumstances
from gradveil.search.semi_trained import semi_trained_model
from gradveil.search.settings import SearchSettings
from gradveil.transforms.library import Library
from gradveil.transforms.policy import Policy

OFFERED = 100  # pictures of a round of the accuracy score, of which one per class is kept


@dataclass(frozen=True, kw_only=True)
class SearchSplit:
    """Pictures [n, c, h, w] with labels [n, class]. `places` are their numbers in the data set, which name them."""

    scored: Batch
    places: tuple[int, ...]
    attacked: Batch
    victims: tuple[int, ...]  # the numbers of the attacked ones
    gallery: Tensor
    rounds: tuple[tuple[Batch, tuple[int, ...]], ...]  # of the accuracy score: one picture per class, and their numbers
    training: Batch  # of the semi-trained model


def split_pictures(
    config: ScenarioConfig, dataset: Dataset, *, images: int, attacked: int, rounds: int, share: float, seed: Seed
) -> SearchSplit:
    """Disjoint parts of a data set; training pictures come from its training split where it has one.

    seed: of the whole search
    """
    check_labels(dataset)
    total = len(dataset)
    if total < images + attacked + 1:
        raise ConfigError(
            f"{images} pictures to score, {attacked} to attack and others to compare with are more than the {total} "
            f"pictures of {dataset.name}, use fewer",
            key="images",
        )
    rows = draw_rows(total, seed)
    victims, backwards = rows[:attacked], sorted(rows[attacked:], reverse=True)
    free = [backwards[place] for place in evenly(dataset.targets[backwards])]
    scored, rest = free[:images], sorted(free[images:])
    return SearchSplit(
        scored=_take(dataset, scored),
        places=tuple(scored),
        attacked=_take(dataset, victims),
        victims=tuple(victims),
        gallery=dataset.images[rest[:LARGEST_GALLERY]],
        rounds=_rounds(dataset, free, rounds, seed.at("search")),
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


def _take(dataset: Dataset, places: tuple[int, ...] | list[int]) -> Batch:
    at = torch.as_tensor(list(places), dtype=torch.long)
    return Batch(dataset.images[at], dataset.targets[at])


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """What is searched, and all that scores it."""

    settings: SearchSettings
    library: Library
    policies: Mapping[Policy, list[Policy]]  # what is scored -> the candidates that do so
    split: SearchSplit
    semi_trained: nn.Module
    scorer: Scorer
    name: str
    compute: Compute

    @property
    def seed(self) -> Seed:
        return Seed(self.settings.seed).at("search")

    @property
    def classes(self) -> list[int]:
        return self.split.scored.labels.argmax(1).tolist()


def prepare_context(
    settings: SearchSettings, config: ScenarioConfig, library: Library, compute: Compute, progress: Progress
) -> SearchContext:
    """Load the data, train what has to be trained, and draw all that does not depend on a policy."""
    seed = Seed(settings.seed).at("search")
    dataset = data.load(config.data, **config.data_options)
    check_classes(dataset)
    attacked = settings.confirm_images if settings.confirm else 0
    parts = {
        "images": settings.images,
        "attacked": attacked,
        "rounds": settings.rounds,
        "share": 0.0 if config.weights else settings.semi_share,
    }
    split = split_pictures(config, dataset, **parts, seed=Seed(settings.seed))
    untrained = model_of(replace(config, weights=""), dataset).eval()
    progress.start("semi-trained model", 1)
    if config.weights:
        semi = model_of(config, dataset).eval()
    else:
        semi = semi_trained_model(
            untrained, split.training, settings.recipe, settings.seed, compute.device, progress.step
        )
    progress.done(1, 0)
    own = candidates(library, settings.candidates, settings.length, seed)
    policies = distinct([*own, *(Policy.parse(text, library) for text in settings.include)])
    slots = max(settings.length, *(policy.slots for policy in policies))
    score = PRIVACY_SCORES[settings.score]
    scorer = Scorer(
        library=library.spec,
        untrained=untrained,
        semi_trained=copy.deepcopy(semi),
        score=score,
        against=settings.against,
        scored=draw_circumstances(split.scored, split.places, slots, score.augment, seed.at("privacy")),
        rounds=tuple(
            draw_circumstances(pictures, places, slots, score.augment, seed.at("accuracy", number))
            for number, (pictures, places) in enumerate(split.rounds)
        ),
        compute=compute,
    )
    name = slug(f"{Path(config.data).name}-{Path(config.model).name}")
    return SearchContext(settings=settings, library=library, policies=policies, split=split, semi_trained=semi,
                         scorer=scorer, name=name, compute=compute)  # fmt: skip
