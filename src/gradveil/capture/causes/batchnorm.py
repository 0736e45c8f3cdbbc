"""Batch normalization in another mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.client import BATCH_NORMS
from gradveil.core.scenario import BatchNorm


def change_batchnorm(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if not any(isinstance(layer, BATCH_NORMS) for layer in story.model.modules()):
        return
    for mode in get_args(BatchNorm)[:2]:
        if mode != story.training.batchnorm.removesuffix("-shared"):
            changed = replace(story, training=replace(story.training, batchnorm=mode))
            do = f'save the capture with training.batchnorm = "{mode}"'
            yield Attempt(name=f"batch normalization was in mode {mode}", story=changed, do=do)
