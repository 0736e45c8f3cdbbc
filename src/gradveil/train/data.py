"""What a training learns from, and what it is evaluated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradveil import data as datasets
from gradveil.audit.split import LARGEST_PUBLIC
from gradveil.config.build import model_of
from gradveil.config.resolve import check_data_options
from gradveil.config.schema import ScenarioConfig
from gradveil.core.choice import parse_pairs
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.defenses.loda.starts import options_for

HELD_OUT = 5  # of a data set with one split only, every fifth picture is for validation


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """The pictures of all clients, those for validation, and public ones for a defense that mixes with them."""

    dataset: Dataset  # its names and constants
    training: Batch
    validation: Batch
    public: Batch | None

    @property
    def model_options(self) -> dict[str, Any]:
        """What a factory of the catalogue is given."""
        set_ = self.dataset
        return {"classes": set_.targets.shape[1], "shape": set_.shape, "seed": 0, "mean": set_.mean, "std": set_.std}

    def model(self, name: str, normalize: str = "auto") -> nn.Module:
        """A model of the catalogue, or of a `file.py:factory`, for these pictures, with constants in front."""
        return model_of(ScenarioConfig(model=name, normalize=normalize), self.dataset)


def load_training_data(spec: str, data_options: Sequence[str], mixes: bool) -> TrainingData:
    """Training and test split; where they are the same, every fifth picture is for validation.

    mixes: set some pictures apart as public, for a defense that mixes with them.
    """
    given = parse_pairs(list(data_options), "data_options")
    if "split" in given:
        raise ConfigError("training uses the splits train and test, leave split out", key="data_options")
    options = check_data_options(spec, given)
    dataset, test = (datasets.load(spec, **options, split=split) for split in ("train", "test"))
    training, validation = (Batch(one.images, one.targets) for one in (dataset, test))
    if training.images.shape == validation.images.shape and torch.equal(training.images, validation.images):
        training, validation = hold_out(training)
    public = None
    if mixes and len(training.images) > 1:
        count = min(LARGEST_PUBLIC, len(training.images) // HELD_OUT)
        training, public = (Batch(*(x[part] for x in training)) for part in (slice(count, None), slice(count)))
    return TrainingData(dataset=dataset, training=training, validation=validation, public=public)


def load_training_part(spec: str, options: Mapping[str, Any]) -> Dataset:
    """One data set whole; where it has a part to train on, that part unless another is named."""
    part = {"split": "train"} if "split" in options_for(spec) and "split" not in options else {}
    return datasets.load(spec, **check_data_options(spec, options), **part)


def hold_out(pictures: Batch) -> tuple[Batch, Batch]:
    """Every fifth picture apart."""
    apart = torch.arange(len(pictures.images)) % HELD_OUT == HELD_OUT - 1
    if not bool(apart.any()):
        raise ConfigError(f"must have {HELD_OUT} pictures or more, got {len(pictures.images)}", key="data")
    return Batch(*(x[~apart] for x in pictures)), Batch(*(x[apart] for x in pictures))
