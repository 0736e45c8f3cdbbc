"""The update is a multiple of what it should be: another rate, or a loss that is a sum and no mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

NEAR = 1e-2


def fit_scale(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    factor = evidence.factor(story)
    if factor <= 0 or factor != factor:
        return
    count = len(story.batch.images)
    rate = story.training.rate * factor
    do = f"save the capture with training.rate = {rate:.4g}"
    if count > 1 and abs(factor / count - 1) < NEAR:
        do = f"the loss is a sum over {count} pictures where a mean is expected: {do}"
    yield Attempt(
        name=f"it is multiplied by {factor:.4g} (rate, or a sum in place of a mean)",
        story=replace(story, factor=story.factor * factor),
        do=do,
        freedom=1,
    )
