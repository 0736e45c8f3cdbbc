"""Another number of local steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

STEPS = (1, 2, 3, 4, 5, 8, 10, 20)


def change_steps(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    for steps in STEPS:
        if steps != story.training.steps:
            changed = replace(story, training=replace(story.training, steps=steps))
            do = f"save the capture with training.steps = {steps}"
            yield Attempt(name=f"the client took {steps} local steps", story=changed, do=do)
