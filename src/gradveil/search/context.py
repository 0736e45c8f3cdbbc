"""A search with its data and models at hand."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from gradveil import data
from gradveil.config import ScenarioConfig
from gradveil.config.build import model_of, slug
from gradveil.core.compute import Compute
from gradveil.core.seeds import Seed
from gradveil.experiment.progress import Progress
from gradveil.search.policies import candidates, distinct
from gradveil.search.privacy import PRIVACY_SCORES
from gradveil.search.scoring import Scorer, circumstances
from gradveil.search.semi_trained import semi_trained
from gradveil.search.settings import Search
from gradveil.search.split import Material, gather
from gradveil.transforms.library import Library
from gradveil.transforms.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What is searched, and all that scores it."""

    asked: Search
    library: Library
    policies: Mapping[Policy, list[Policy]]  # what is scored -> the candidates that do so
    material: Material
    semi_trained: nn.Module
    scorer: Scorer
    name: str
    compute: Compute

    @property
    def seed(self) -> Seed:
        return Seed(self.asked.seed).at("search")

    @property
    def classes(self) -> list[int]:
        return self.material.scored.labels.argmax(1).tolist()


def prepared(asked: Search, config: ScenarioConfig, library: Library, compute: Compute, shown: Progress) -> Ground:
    """Load the data, train what has to be trained, and draw all that does not depend on a policy."""
    seed = Seed(asked.seed).at("search")
    dataset = data.load(config.data, **config.data_options)
    attacked = asked.confirm_images if asked.confirm else 0
    parts = {
        "images": asked.images,
        "attacked": attacked,
        "rounds": asked.rounds,
        "share": 0.0 if config.weights else asked.semi_share,
    }
    material = gather(config, dataset, **parts, seed=seed)
    untrained = model_of(replace(config, weights=""), dataset).eval()
    shown.start("semi-trained model", 1)
    if config.weights:
        semi = model_of(config, dataset).eval()
    else:
        semi = semi_trained(untrained, material.training, asked.recipe, asked.seed, compute.device, shown.step)
    shown.done(1, 0)
    own = candidates(library, asked.candidates, asked.length, seed)
    policies = distinct([*own, *(Policy.parse(text, library) for text in asked.include)])
    slots = max(asked.length, *(policy.slots for policy in policies))
    score = PRIVACY_SCORES[asked.score]
    scorer = Scorer(
        library=library.spec,
        untrained=untrained,
        semi_trained=copy.deepcopy(semi),
        score=score,
        against=asked.against,
        scored=circumstances(material.scored, material.places, slots, score.augment, seed.at("privacy")),
        rounds=tuple(
            circumstances(pictures, places, slots, score.augment, seed.at("accuracy", number))
            for number, (pictures, places) in enumerate(material.rounds)
        ),
        compute=compute,
    )
    name = slug(f"{Path(config.data).name}-{Path(config.model).name}")
    return Ground(asked=asked, library=library, policies=policies, material=material, semi_trained=semi, scorer=scorer,
                  name=name, compute=compute)  # fmt: skip
