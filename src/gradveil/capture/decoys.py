"""Whether a client's pictures explain an update that nobody can play again: one that was changed, or drawn."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from gradveil.audit.update_match import cosine
from gradveil.capture.causes.story import DRAWN, Story, draw, relative_error, train_once
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Batch, Update

FURTHER = 1.5  # times what rounds with draws of our own are away from one without: what the update may be
DECOYS, FEWEST_DECOYS = 64, 19  # with 19, pictures that are not the client's pass once in twenty


def draws_explain(model: nn.Module, batch: Batch, training: LocalTraining, update: Update) -> bool:
    """Whether the update is as far from one without draws as those are that a client with these pictures draws."""
    free, story = train_once(model, batch, training), Story(model=model, batch=batch, training=training)
    each = [draw(story, number) for number in range(DRAWN)]
    return relative_error(free, update) <= FURTHER * max(relative_error(free, one) for one in each)


def explains_best(model: nn.Module, training: LocalTraining, update: Update, batch: Batch, decoys: Batch) -> bool:
    """The update was changed, but these pictures explain it better than any others do under the same labels."""
    better = share_of_better(Story(model=model, batch=batch, training=training), update, decoys)
    return better == 0


def share_of_better(story: Story, update: Update, decoys: Batch) -> float | None:
    """How many of other pictures explain the update better; None where there are too few of them.

    Labels decide most of an update's direction, so other labels would make any picture of the right class look right.
    """
    count = len(story.batch.images)
    starts = range(max(0, len(decoys.images) - count + 1))[:: max(1, (len(decoys.images) - count) // DECOYS)]
    if len(starts) < FEWEST_DECOYS:
        return None
    angle = cosine(expect(story), update)
    others = (Batch(decoys.images[start : start + count], story.batch.labels) for start in starts)
    return sum(cosine(expect(replace(story, batch=other)), update) >= angle for other in others) / len(starts)


def expect(story: Story) -> Update:
    """Without the client's draws; of crops, of which no cropping is no mean, the mean of some rounds."""
    if story.training.augment == "none":
        return train_once(story.model, story.fed, story.training)
    each = [draw(story, number) for number in range(DRAWN)]
    return {name: torch.stack([one[name] for one in each]).mean(0) for name in each[0]}
