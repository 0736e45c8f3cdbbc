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
GUESSES, ROUND = 5, 0.3  # of a rate; how far a round number may be from the guess


def change_optimizer(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    training = story.training
    fedsgd = training.steps == 1 and training.rate == 1.0  # of a gradient a step of Adam's would be its sign
    for optimizer in get_args(LocalOptimizer):
        if optimizer == training.optimizer:
            continue
        is_alike = {optimizer, training.optimizer} == {"adam", "adamw"} and not training.weight_decay
        plain = replace(training, momentum=0.0, nesterov=False, dampening=0.0, optimizer="sgd")
        changed = replace(story, training=replace(plain, optimizer=optimizer))
        name, do = f"its optimizer was {optimizer}", f'save the capture with training.optimizer = "{optimizer}"'
        if not fedsgd and not is_alike:
            yield Attempt(name=name, story=changed, do=do)
        decays = optimizer == "adamw" and not training.weight_decay
        if decays:
            yield _decay_as_torch(changed, name, do)
        for rate in _guess_rates(changed, evidence):
            more = f" and training.rate = {rate:g}"
            guess = Attempt(name=f"{name}, its rate {rate:g}", story=with_rate(changed, rate), do=do + more, freedom=1,
                            quick=False)  # fmt: skip
            if not is_alike:
                yield guess
            if decays:
                yield replace(_decay_as_torch(guess.story, guess.name, guess.do), freedom=1)


def _guess_rates(story: Story, evidence: Evidence) -> list[float]:
    """At which the steps are as long as those received: nearer and nearer, and the round number beside it."""
    rate = story.training.rate
    for _ in range(GUESSES):
        factor = evidence.factor(with_rate(story, rate))
        if not 0 < factor < float("inf"):
            return []
        rate *= factor
        if abs(factor - 1) < NEAR:
            break
    usual = float(f"{rate:.0e}")
    found = [usual] if abs(rate / usual - 1) < ROUND else []
    found += [float(f"{rate:.4g}")]
    return [one for one in dict.fromkeys(found) if abs(one / story.training.rate - 1) > NEAR]


def _decay_as_torch(changed: Story, name: str, do: str) -> Attempt:
    """AdamW decays by 0.01 where nobody says otherwise."""
    story = replace(changed, training=replace(changed.training, weight_decay=ADAMW_DECAY))
    more = f" and training.weight_decay = {ADAMW_DECAY}"
    return Attempt(name=f"{name}, its weight decay {ADAMW_DECAY}", story=story, do=do + more, quick=False)
