"""A learning rate that changed within the round, or that did not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

TRIED: dict[str, dict[str, Any]] = {
    "stayed as it was": {"schedule": "constant", "warmup": 0},
    "fell to zero as a cosine": {"schedule": "cosine"},
    "fell to a tenth after every step": {"schedule": "step", "decay_every": 1, "decay_factor": 0.1},
    "fell to a half after every step": {"schedule": "step", "decay_every": 1, "decay_factor": 0.5},
}


def change_schedule(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    training = story.training
    if training.steps == 1:
        return
    warm = {"rose over all steps": {"schedule": "constant", "warmup": training.steps}}
    for text, settings in {**TRIED, **warm}.items():
        changed = replace(training, **settings)
        if changed != training:
            do = " and ".join(f"training.{key} = {value}" for key, value in settings.items())
            yield Attempt(
                name=f"its rate {text}", story=replace(story, training=changed), do=f"save the capture with {do}"
            )
