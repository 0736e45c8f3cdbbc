"""Another optimizer, at the rate that was declared or at the one at which its steps are as long as those received."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.rate import with_rate
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.local_training import LocalOptimizer

NEAR, ADAMW_DECAY = 2e-3, 0.01


def change_optimizer(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    training = story.training
    fedsgd = training.steps == 1 and training.rate == 1.0  # of a gradient a step of Adam's would be its sign
    for optimizer in get_args(LocalOptimizer):
        if optimizer == training.optimizer:
            continue
        plain = replace(training, momentum=0.0, nesterov=False, dampening=0.0, optimizer="sgd")
        changed = replace(story, training=replace(plain, optimizer=optimizer))
        name, do = f"its optimizer was {optimizer}", f'save the capture with training.optimizer = "{optimizer}"'
        if not fedsgd:
            yield Attempt(name=name, story=changed, do=do)
        if optimizer == "adamw" and not training.weight_decay:
            yield _decay_as_torch(changed, name, do)
        factor = evidence.factor(changed)
        if factor > 0 and abs(factor - 1) > NEAR:
            rate = float(f"{training.rate * factor:.4g}")
            more = f" and training.rate = {rate:g}"
            yield Attempt(name=f"{name}, its rate {rate:g}", story=with_rate(changed, rate), do=do + more, freedom=1,
                          quick=False)  # fmt: skip


def _decay_as_torch(changed: Story, name: str, do: str) -> Attempt:
    """AdamW decays by 0.01 where nobody says otherwise."""
    story = replace(changed, training=replace(changed.training, weight_decay=ADAMW_DECAY))
    more = f" and training.weight_decay = {ADAMW_DECAY}"
    return Attempt(name=f"{name}, its weight decay {ADAMW_DECAY}", story=story, do=do + more, quick=False)
