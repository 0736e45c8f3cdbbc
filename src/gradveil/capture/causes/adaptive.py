"""Other numbers of an adaptive optimizer than torch's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

ADAM = {"beta1": (0.9, 0.5, 0.0, 0.8, 0.95), "beta2": (0.999, 0.99, 0.95, 0.9, 0.98), "epsilon": (1e-7, 1e-6, 1e-3)}
TRIED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "adam": ADAM,
    "adamw": ADAM,
    "rmsprop": {"smoothing": (0.99, 0.9, 0.95), "epsilon": (1e-7, 1e-6, 1e-3)},
    "adagrad": {"epsilon": (1e-7, 1e-8, 1e-3)},
}


def change_numbers(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    for key, values in TRIED.get(story.training.optimizer, {}).items():
        for value in values:
            if value != getattr(story.training, key):
                changed = replace(story, training=replace(story.training, **{key: value}))
                do = f"save the capture with training.{key} = {value:g}"
                yield Attempt(name=f"its {key} was {value:g}", story=changed, do=do)
