"""Random crop and horizontal flip, then a policy, as training pipelines do. What is drawn is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from gradveil.transforms.geometry import move_pixels
from gradveil.transforms.policy import Draw, Policy
from gradveil.transforms.rounding import Pictures

PADDING = 4
AT_ONCE = 4096  # pictures that are cropped and transformed at once
Offsets = Int[Tensor, " image"]
Flips = Bool[Tensor, " image"]


class CropAndFlip(NamedTuple):
    """For each picture, where its crop begins in the padded picture and whether it is mirrored after that."""

    top: Tensor
    left: Tensor
    flipped: Tensor

    @classmethod
    def draw(cls, count: int, rng: Generator, padding: int = PADDING) -> CropAndFlip:
        """For crops of the picture's own size. What a picture draws does not depend on how many follow it."""
        chances = torch.rand(count, 3, generator=rng, dtype=torch.float64)
        top, left, flip = chances.unbind(1)
        places = 2 * padding + 1
        return cls((top * places).long(), (left * places).long(), flip < 0.5)

    def apply(self, images: Pictures, padding: int = PADDING) -> Pictures:
        """Moves the draws to where the pictures are."""
        top, left, flipped = (part.to(images.device) for part in self)
        return flip(crop(images, top, left, padding), flipped)


def crop_and_flip(images: Pictures, sizes: Sequence[int], rngs: Sequence[Generator]) -> Pictures:
    """The pictures of many clients, `sizes` of each, cropped and flipped as each client draws it."""
    drawn = [CropAndFlip.draw(size, rng) for size, rng in zip(sizes, rngs, strict=True)]
    whole = [torch.cat(parts).to(images.device).split(AT_ONCE) for parts in zip(*drawn, strict=True)]
    pieces = zip(images.split(AT_ONCE), *whole, strict=True)
    return torch.cat([CropAndFlip(*draw).apply(piece) for piece, *draw in pieces])


def run_policy(policy: Policy, images: Pictures, sizes: Sequence[int], rngs: Sequence[Generator]) -> Pictures:
    """The pictures of many clients, `sizes` of each, through a policy as each client draws it."""
    drawn = [policy.draw(size, rng) for size, rng in zip(sizes, rngs, strict=True)]
    choice, signs = (torch.cat(parts).split(AT_ONCE) for parts in zip(*drawn, strict=True))
    pieces = zip(images.split(AT_ONCE), choice, signs, strict=True)
    return torch.cat([policy.apply(piece, Draw(c, s)) for piece, c, s in pieces])


def crop(images: Pictures, top: Offsets, left: Offsets, padding: int = PADDING) -> Pictures:
    """A crop of the picture's own size from the picture with a black border."""
    height, width = images.shape[2:]
    row = _from(top - padding, height)[:, None, :, None]
    column = _from(left - padding, width)[:, None, None]
    return move_pixels(images, row, column)


def flip(images: Pictures, flipped: Flips) -> Pictures:
    """Mirrors left and right."""
    return torch.where(flipped[:, None, None, None], images.flip(3), images)


def _from(start: Offsets, size: int) -> Int[Tensor, "image size"]:
    return start[:, None] + torch.arange(size, device=start.device)
