"""Dropout that was on: the update has to lie as far from the mean as rounds with masks of our own do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.dropout import DrawnMasks
from gradveil.core.seeds import Seed

DO = 'save the capture with training.dropout = "on"; the attacks then run without its masks, which nobody knows'


def draw_masks(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if story.training.dropout == "off" and has_dropout(story.model, story.batch.images[:1]):
        changed = replace(story, training=replace(story.training, dropout="on"))
        yield Attempt(name="dropout was on", story=changed, do=DO)


def has_dropout(model: nn.Module, images: Tensor) -> bool:
    """Whether masks change what the model gives, be they of a layer or of a function."""
    model.eval()
    with torch.no_grad():
        plain = model(images)
        with DrawnMasks(Seed().rng()):
            masked = model(images)
    return not torch.equal(plain, masked)
