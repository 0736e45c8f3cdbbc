"""A setting with its pictures: one model, the updates of its clients, and what only the referee knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gradveil.bench.strength.settings import FALLBACK, MODEL_NAMES, RATE, Kind, Setting
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.data.draw import draw_rows
from gradveil.models import MODELS
from gradveil.train.centralized import fit

SIZE = 32  # pixels
GALLERY, PUBLIC = 500, 1500  # pictures, at most: to be found among, and to train on
EPOCHS, TRAINING_RATE, TRAINING_BATCH = 8, 0.02, 32
# by kind: the data set and its options, where an .npz file is not given
LOADERS: Mapping[Kind, tuple[str, Mapping[str, Any]]] = {
    "cifar10": ("cifar10", {}),
    "faces": ("utkface", {"size": SIZE}),
    "xrays": ("image-zip", {"size": SIZE, "label": "view", "channels": 1}),
    "cells": ("image-zip", {"size": SIZE}),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """`truth`, `gallery` and `blank` are for the referee; attacks see `seen`, and peers what `export` writes of it."""

    setting: Setting
    seen: Observation
    truth: Truth
    gallery: Tensor  # [picture, channel, height, width]
    blank: Tensor  # mean public color, [channel, 1, 1]
    mean: tuple[float, ...]  # what the model subtracts and divides by
    std: tuple[float, ...]


def check_kinds(given: Mapping[str, str]) -> None:
    for kind, spec in given.items():
        if kind not in LOADERS:
            raise ConfigError(f"unknown kind {kind!r}, take one of {', '.join(LOADERS)}", key="pictures")
        if not Path(spec).exists():
            raise ConfigError(f"{spec}: no such file or folder, give the pictures of {kind}", key="pictures")


@cache
def load_kind(kind: Kind, spec: str) -> Dataset:
    if kind == FALLBACK:
        return load(FALLBACK, size=SIZE)
    name, options = LOADERS[kind]
    return load(spec) if spec.endswith(".npz") else load(name, root=spec, **options)


def make_case(setting: Setting, given: Mapping[str, str], seed: int) -> Case:
    """The same for everybody who has the same pictures and seed."""
    data, stream = load_kind(setting.pictures, given.get(setting.pictures, "")), Seed(seed).at("strength", setting.name)
    count = setting.clients * setting.batch
    if len(data) < 2 * count:
        raise ConfigError(f"{setting.pictures}: {len(data)} pictures are too few, give {2 * count}", key="pictures")
    rows = draw_rows(len(data), Seed(seed).at("strength", setting.pictures))
    rest = rows[count:]
    model = make_model(setting, data, rest[:PUBLIC], seed)
    images, labels = (
        x[rows[:count]].unflatten(0, (setting.clients, setting.batch)) for x in (data.images, data.targets)
    )
    scenario = Scenario(
        name=setting.name,
        model=model,
        private=Batch(images, labels),
        names=tuple(f"c{client:04d}" for client in range(setting.clients)),
        training=training_of(setting, data),
        threat=ThreatModel(knows_labels=not setting.infers),
        trained=setting.trained,
    )
    seen, truth = observe_agreed(scenario, Defense(), stream)
    gallery = data.images[rest[:GALLERY]]
    blank = gallery.mean((0, 2, 3))[:, None, None]
    return Case(setting=setting, seen=seen, truth=truth, gallery=gallery, blank=blank, mean=data.mean, std=data.std)


def training_of(setting: Setting, data: Dataset) -> LocalTraining:
    assert data.loss is not None  # only pictures with classes are in the contest
    return LocalTraining(steps=setting.steps, rate=RATE if setting.steps > 1 else 1.0, loss=data.loss)


def make_model(setting: Setting, data: Dataset, rows: list[int], seed: int) -> nn.Module:
    """Untrained, or trained here for a few epochs on public pictures of the same kind: no file of weights is needed."""
    model = MODELS[MODEL_NAMES[setting.model]](
        classes=len(data.class_names), shape=data.shape, seed=seed, mean=data.mean, std=data.std
    )
    if setting.trained:
        public = Batch(data.images[rows], data.targets[rows])
        fit(model, public, epochs=EPOCHS, rate=TRAINING_RATE, batch_size=TRAINING_BATCH, augment=False, seed=seed)
    return model.eval()


def victims(case: Case) -> Tensor:
    """The private pictures, [client, example, channel, height, width]."""
    return case.truth.private.images.float()
