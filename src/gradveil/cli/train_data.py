"""The data, the model and the defense of a training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradveil import data as datasets
from gradveil.audit.split import LARGEST_PUBLIC
from gradveil.config.build import model_of
from gradveil.config.resolve import is_user_model, resolve
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import parse_choice, parse_pairs
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.defenses import DEFENSES
from gradveil.models import MODELS

HELD_OUT = 5  # where there is one split alone, every fifth picture is for validation


@dataclass(frozen=True, kw_only=True)
class Material:
    """Who learns from what, and what they are judged by."""

    dataset: Dataset  # its names and constants
    training: Batch
    validation: Batch
    public: Batch | None  # for defenses that mix with public pictures

    @property
    def model_options(self) -> dict[str, Any]:
        """What a factory of the catalogue is given."""
        set_ = self.dataset
        return {"classes": set_.targets.shape[1], "shape": set_.shape, "seed": 0, "mean": set_.mean, "std": set_.std}


def defense_of(text: str) -> Defense:
    choice = parse_choice(text, "--defense", DEFENSES)
    checked = resolve(AuditConfig(defense={choice.name: choice}), lambda key: key.replace("defense.", "--defense: "))
    return DEFENSES[choice.name](**checked.defense[choice.name].options)


def gathered(spec: str, data_options: Sequence[str], defense: Defense) -> Material:
    """Training and test split; where they are the same, one is made of the other."""
    options = data_options_of(spec, parse_pairs(list(data_options), "--data-option"))
    first, second = (datasets.load(spec, **options, split=split) for split in ("train", "test"))
    whole, judged = (Batch(one.images, one.targets) for one in (first, second))
    if whole.images.shape == judged.images.shape and torch.equal(whole.images, judged.images):
        whole, judged = held_out(whole)
    public = None
    if defense.knowledge().mixes and len(whole.images) > 1:
        count = min(LARGEST_PUBLIC, len(whole.images) // HELD_OUT)
        whole, public = (Batch(*(x[part] for x in whole)) for part in (slice(count, None), slice(count)))
    return Material(dataset=first, training=whole, validation=judged, public=public)


def data_options_of(spec: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options as they were given, each known to the data set and of its type."""
    if "split" in given:
        raise ConfigError("--data-option: training takes the splits train and test both, leave split out")
    names = {"scenario.data_options.": "--data-option: ", "scenario.data_options": "--data-option"}

    def where(key: str) -> str:
        for known, option in names.items():
            key = key.replace(known, option)
        return key.replace("scenario.", "--")

    checked = resolve(AuditConfig(scenario=ScenarioConfig(data=spec, data_options=given)), where)
    return {key: checked.scenario.data_options[key] for key in given}


def held_out(whole: Batch) -> tuple[Batch, Batch]:
    """Every fifth picture apart."""
    judged = torch.arange(len(whole.images)) % HELD_OUT == HELD_OUT - 1
    if not bool(judged.any()):
        raise ConfigError(f"--data: {len(whole.images)} pictures are too few to train and to validate, give more")
    return Batch(*(x[~judged] for x in whole)), Batch(*(x[judged] for x in whole))


def check_model_name(spec: str) -> None:
    if not is_user_model(spec) and spec not in MODELS:
        raise unknown("model", spec, MODELS, "--model")


def model_for(spec: str, material: Material) -> nn.Module:
    return model_of(ScenarioConfig(model=spec), material.dataset)
