"""Another learning rate: over several steps, or with an adaptive optimizer, it is more than a factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.story import Evidence, Story


def fit_rate(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if story.training.is_linear and story.training.steps == 1:
        return  # a factor
    factor = evidence.factor(story)
    if factor <= 0 or factor != factor:
        return

    def at(numbers: object) -> Story:
        return with_rate(story, numbers[0])  # type: ignore[index]

    (rate,), _ = fit(at, [story.training.rate * factor], evidence)
    if rate > 0:
        name = f"its rate was {rate:.4g}"
        do = f"save the capture with training.rate = {rate:.4g}"
        yield Attempt(name=name, story=with_rate(story, rate), do=do, freedom=1)


def with_rate(story: Story, rate: float) -> Story:
    return replace(story, training=replace(story.training, rate=rate))
