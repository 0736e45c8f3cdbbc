"""Momentum that nobody declared, or that was not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

MOMENTA, FURTHER = (0.9,), (0.0, 0.5, 0.8, 0.95, 0.99)


def change_momentum(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    training = story.training
    if training.steps == 1 or training.optimizer != "sgd":
        return
    for momentum in (*MOMENTA, *FURTHER):
        if momentum != training.momentum:
            plain = replace(training, momentum=momentum, nesterov=False, dampening=0.0)
            do = f"save the capture with training.momentum = {momentum}"
            name, quick = f"its momentum was {momentum}", momentum in MOMENTA
            yield Attempt(name=name, story=replace(story, training=plain), do=do, quick=quick)
    if not training.nesterov:
        fast = replace(training, momentum=training.momentum or 0.9, nesterov=True, dampening=0.0)
        do = f"save the capture with training.momentum = {fast.momentum} and training.nesterov = true"
        name = f"its momentum was {fast.momentum}, Nesterov's"
        yield Attempt(name=name, story=replace(story, training=fast), do=do, quick=False)
