"""Pictures as the client may have fed them: changes of every channel by two numbers, where the model normalizes or not.

Not a reason itself; several reasons stand on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradveil.capture.causes.story import Story
from gradveil.models.normalize import constants_of


def feed(story: Story, gain: Tensor, shift: Tensor) -> Story:
    """Every channel of what is fed multiplied with a number and moved by one."""
    channels = story.batch.images.shape[1]
    before = torch.tensor(story.gain or (1.0,) * channels), torch.tensor(story.shift or (0.0,) * channels)
    gain, shift = (one.flatten().expand(channels) for one in (gain, shift))
    return replace(story, gain=tuple((gain * before[0]).tolist()), shift=tuple((gain * before[1] + shift).tolist()))


def feed_normalized(story: Story, mean: Sequence[float], std: Sequence[float]) -> Story:
    """What reaches the network is normalized with these constants, whatever the model has in front of it."""
    own_mean, own_std = own_constants(story)
    wanted = feed(story, 1 / torch.tensor(std), -torch.tensor(mean) / torch.tensor(std))
    return feed(wanted, own_std, own_mean)


def own_constants(story: Story) -> tuple[Tensor, Tensor]:
    return constants_of(story.model, story.batch.images.shape[1])
