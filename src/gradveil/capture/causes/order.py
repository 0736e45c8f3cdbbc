"""Pictures in another order than that of the data: every order is tried where they are few, else draws are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.capture.orders import list_orders
from gradveil.core.types import Batch

NAME = "the client shuffled its pictures (order unknown)"
DO = 'save the capture with training.order = "unknown"'


def change_order(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    training, batch = story.training, story.batch
    if training.order == "unknown" or not 0 < (training.batch_size or 0) < len(batch.images):
        return
    for rows in list_orders(training, len(batch.images)):
        if evidence.is_late:
            return
        shuffled = replace(story, batch=Batch(batch.images[rows], batch.labels[rows]))
        yield Attempt(name=NAME, story=shuffled, do=DO)
    shuffled = replace(story, training=replace(training, order="unknown"))
    yield Attempt(name=NAME, story=shuffled, do=DO, quick=False)
