"""A search with its data and models at hand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from gradveil import data
from gradveil.config import ScenarioConfig
from gradveil.config.build import model_of
from gradveil.core.compute import Compute
from gradveil.core.files import slug
from gradveil.core.seeds import Seed
from gradveil.experiment.progress import Progress
from gradveil.search.policies import candidates, distinct
from gradveil.search.privacy import PRIVACY_SCORES
from gradveil.search.scoring import Scorer, draw_circumstances
from gradveil.search.semi_trained import semi_trained_model
from gradveil.search.settings import SearchSettings
from gradveil.search.split import SearchSplit, split_pictures
from gradveil.transforms.library import Library
from gradveil.transforms.policy import Policy


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
    attacked = settings.confirm_images if settings.confirm else 0
    parts = {
        "images": settings.images,
        "attacked": attacked,
        "rounds": settings.rounds,
        "share": 0.0 if config.weights else settings.semi_share,
    }
    split = split_pictures(config, dataset, **parts, seed=seed)
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
