"""Random crops and flips as ordinary training loops make them, in every local step, by the client's own stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

PADDING = 4


def crop_and_flip(images: Tensor, rng: Generator) -> Tensor:
    """Each picture cropped from itself with a black border of four pixels, and mirrored or not."""
    count, channels, height, width = images.shape
    top, left = (torch.randint(2 * PADDING + 1, (count, 1), generator=rng) for _ in range(2))
    mirrored = torch.rand(count, 1, generator=rng) < 0.5
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    at = torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None]
    where = (*at, rows[:, None, :, None], columns[:, None, None, :])
    return F.pad(images, (PADDING,) * 4)[tuple(place.to(images.device) for place in where)]
