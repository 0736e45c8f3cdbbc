"""Dropout that was on: the update has to lie as far from the mean as rounds with masks of our own do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.dropout import LAYERS

DO = 'save the capture with training.dropout = "on"; the attacks then run without its masks, which nobody knows'


def draw_masks(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    has_dropout = any(isinstance(layer, LAYERS) and layer.p > 0 for layer in story.model.modules())
    if has_dropout and story.training.dropout == "off":
        changed = replace(story, training=replace(story.training, dropout="on"))
        yield Attempt(name="dropout was on", story=changed, do=DO)
