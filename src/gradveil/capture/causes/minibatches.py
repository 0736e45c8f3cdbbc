"""Minibatches of another size, in order or shuffled, for one epoch or two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

SIZES, EPOCHS = (1, 2, 4, 8, 16, 32, 64), (1, 2)


def change_minibatches(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    count, training = len(story.batch.images), story.training
    for size in (size for size in SIZES if size < count):
        for epochs in EPOCHS:
            plain = replace(training, batch_size=size, steps=epochs * -(-count // size))
            if plain.batch_size == training.batch_size and plain.steps == training.steps:
                continue
            yield from _attempts(story, replace(story, training=plain), epochs)


def _attempts(story: Story, changed: Story, epochs: int) -> Iterator[Attempt]:
    training = changed.training
    name = f"the client took {training.steps} steps on minibatches of {training.batch_size}"
    do = f"save the capture with training.batch_size = {training.batch_size} and training.epochs = {epochs}"
    yield Attempt(name=name, story=changed, do=do)
    if story.training.is_linear and story.training.batch_size is None:  # else `order` asks that
        mixed = replace(changed, training=replace(training, order="unknown"))
        do = f'{do} and training.order = "unknown"'
        yield Attempt(name=f"{name}, shuffled", story=mixed, do=do)
