"""Pictures as the client may have fed them: changes of every channel by two numbers, where the model normalizes or not.

Not a reason itself; several reasons stand on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradveil.capture.causes.story import Story
from gradveil.core.types import Batch
from gradveil.models.normalize import constants_of


def feed(story: Story, images: Tensor) -> Story:
    return replace(story, batch=Batch(images, story.batch.labels))


def feed_normalized(story: Story, mean: Sequence[float], std: Sequence[float]) -> Story:
    """What reaches the network is normalized with these constants, whatever the model has in front of it."""
    own_mean, own_std = own_constants(story)
    wanted = (story.batch.images - _column(mean)) / _column(std)
    return feed(story, wanted * own_std + own_mean)


def own_constants(story: Story) -> tuple[Tensor, Tensor]:
    mean, std = constants_of(story.model, story.batch.images.shape[1])
    return mean.view(-1, 1, 1), std.view(-1, 1, 1)


def _column(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers).view(-1, 1, 1)
