"""What all sites agree on: the model and how a round is trained. And whose pictures are whose."""

from __future__ import annotations

from torch import nn

from gradveil import data
from gradveil.core.types import Batch
from gradveil.models import MODELS

SIZE, RATE = 16, 0.1
PICTURES = 1  # of each site: the hardest case for a defense
SHAPE, CLASSES = (1, SIZE, SIZE), 10


def make_model() -> nn.Module:
    digits = data.load("digits", limit=1, size=SIZE)
    return MODELS["mlp"](classes=CLASSES, shape=SHAPE, mean=digits.mean, std=digits.std)


def pictures_of(site: int) -> Batch:
    """Site 0 has the first pictures, site 1 the next. Labels are soft, [picture, class]."""
    digits = data.load("digits", size=SIZE)
    own = slice(site * PICTURES, (site + 1) * PICTURES)
    return Batch(digits.images[own], digits.targets[own])


def held_out() -> Batch:
    digits = data.load("digits", split="train", limit=200, size=SIZE)
    return Batch(digits.images, digits.targets)
