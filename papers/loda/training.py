"""Accuracy: networks trained on private pictures under each defense (table 1), and other architectures (table 7).

One client holds all private pictures, and each batch is a round of its own: what prunes acts on the batch's gradient,
what mixes acts on the batch, so anew in every epoch. LODA encodes once, before training. Crops and flips for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from study import DEFENDED, Study
from torch import Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses._mixing import Mixing
from gradveil.train.centralized import accuracy, fit

Cells = dict[str, Callable[[], dict[str, Any]]]
DRAWS = 10  # encodings of a test picture whose answers are averaged, as InstaHide's authors do
AT_ONCE = 500
TABLE_1 = {
    "none": 95.20, "prune 0.9": 93.30, "prune 0.99": 88.64, "mixup 4": 93.84, "mixup 6": 92.38, "instahide 4": 91.80,
    "instahide 6": 88.52, "loda-1": 89.50, "loda-2": 91.78,
}  # fmt: skip
TABLE_7 = {
    "resnet34": {"none": 95.47, "loda-1": 89.05, "loda-2": 91.42},
    "vgg16": {"none": 93.44, "loda-1": 83.77, "loda-2": 88.81},
    "densenet121": {"none": 94.46, "loda-1": 87.83, "loda-2": 90.32},
}


def accuracies(study: Study) -> Cells:
    return {label: partial(learned, study, label, "resnet18", TABLE_1[label]) for label in DEFENDED}


def cross(study: Study) -> Cells:
    wanted = [(name, label) for name in study.asked.networks for label in ("none", "loda-1", "loda-2")]
    return {f"{name}, {label}": partial(learned, study, label, name, TABLE_7[name][label]) for name, label in wanted}


def learned(study: Study, label: str, network: str, paper: float) -> dict[str, Any]:
    """One network trained under one defense, and how many test pictures it puts into their class, in %."""
    defense = study.defense(label)
    images, report = study.private.images, {}
    if label.startswith("loda"):
        images, seconds = study.encodings(defense, len(images))
        report = {"encode_seconds": round(seconds, 1)}
    begin = time.perf_counter()
    model = trained(study, study.network(network), images, defense)
    report |= {"train_seconds": round(time.perf_counter() - begin, 1), "epochs": study.asked.epochs, "paper": paper}
    report["accuracy"] = 100 * accuracy(model, Batch(study.test.images, study.test.targets))
    if isinstance(defense, Mixing):
        report["accuracy_encoded"] = 100 * accuracy_encoded(model, study, defense)
    return report


def trained(study: Study, model: nn.Module, images: Tensor, defense: Defense | None = None) -> nn.Module:
    asked, data = study.asked, Batch(images, study.private.targets[: len(images)])
    mixes = isinstance(defense, Mixing)
    prunes = defense is not None and defense.acts_at("update")
    return fit(
        model,
        data,
        epochs=asked.epochs,
        rate=asked.rate,
        batch_size=asked.batch_size,
        seed=asked.seed,
        device=study.compute.device,
        bf16=study.trains_in_bf16,
        feed=defense.data if mixes else None,
        send=defense.update if prunes and defense is not None else None,
    )


@torch.no_grad()
def accuracy_encoded(model: nn.Module, study: Study, defense: Mixing) -> float:
    """Of test pictures that are encoded as those of the training were, each so many times."""
    right = 0
    for first in range(0, len(study.test.images), AT_ONCE):
        here = slice(first, first + AT_ONCE)
        batch = Batch(*(x[here].to(study.compute.device) for x in (study.test.images, study.test.targets)))
        if len(batch.images) < defense.k:
            continue
        seeds = [Seed(study.asked.seed).at("test", first, draw) for draw in range(DRAWS)]
        answers = [model(defense.data(batch, seed.rng()).images).softmax(1) for seed in seeds]
        right += int((torch.stack(answers).mean(0).argmax(1) == batch.labels.argmax(1)).sum())
    return right / len(study.test.images)
