"""Posterize, solarize, autocontrast, equalize and invert: PIL's ImageOps, which map each level to another."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gradveil.transforms.rounding import (
    WHITE,
    Amounts,
    Pictures,
    floored,
    in_place_of,
    levels,
    per_image,
    pictures,
    truncated,
)


def invert(images: Pictures, amount: Amounts) -> Pictures:
    return pictures(WHITE - levels(images), images)


def solarize(images: Pictures, amount: Amounts) -> Pictures:
    """Inverts what is at or above the threshold, a level up to 256."""
    image = levels(images)
    # 1 from the threshold on, else 0: with whole numbers a clamp says so, much faster than `where`
    above = (image.detach() - (per_image(amount).ceil() - 1)).clamp(0, 1)
    return pictures(above.mul_(WHITE - 2 * image).add_(image), images)


def posterize(images: Pictures, amount: Amounts) -> Pictures:
    """Keeps this many of the 8 bits. The gradient is that of the identity."""
    bits = per_image(amount, torch.int64)
    step = (torch.ones_like(bits) << (8 - bits)).float()
    return pictures(floored(levels(images) / step) * step, images)


def autocontrast(images: Pictures, amount: Amounts) -> Pictures:
    """Stretches every channel to 0 to 255; a channel with one level stays as it is."""
    image = levels(images)
    low, high = (end(dim=(2, 3), keepdim=True).double() for end in (image.amin, image.amax))
    flat = high <= low
    span = torch.where(flat, WHITE, high - low)  # of a flat channel: stretched by 1
    scale = torch.full_like(span, WHITE) / span  # a plain 255 would be multiplied by 1 / span
    offset = torch.where(flat, 0, -low * scale)
    # float64 and this order, as in PIL: the highest level may end at 254.99..., which is cut off to 254
    return pictures(truncated(image.double().mul_(scale).add_(offset)), images)


def equalize(images: Pictures, amount: Amounts) -> Pictures:
    """Spreads the levels of every channel evenly. The gradient is that of the identity."""
    image = levels(images)
    index = image.detach().flatten(2).long().clamp(0, 255)  # a search may leave [0, 1], and be nowhere at all
    found = _equalizing(_histogram(index)).gather(2, index).view_as(image)
    return pictures(in_place_of(image, found), images)


def _histogram(index: Int[Tensor, "image channel pixel"]) -> Float[Tensor, "image channel 256"]:
    empty = torch.zeros(*index.shape[:2], 256, device=index.device)
    return empty.scatter_add(2, index, torch.ones((), device=index.device).expand(index.shape))


def _equalizing(histogram: Float[Tensor, "image channel 256"]) -> Float[Tensor, "image channel 256"]:
    """What each level becomes: how many pixels are below it, counted in steps of a 255th of all but the highest level.

    A step of no pixel (few pixels, or all of one level) leaves the picture as it is, as in PIL.
    """
    below = histogram.cumsum(2) - histogram
    below_highest = (below * (histogram > 0)).amax(2, keepdim=True)
    step = ((below_highest + 0.5) / 255).floor()  # the half keeps multiples of 255 from falling below
    spread = (((step / 2).floor() + below) / step.clamp(min=1)).floor().clamp(max=WHITE)
    return torch.where(step > 0, spread, torch.arange(256, device=step.device, dtype=step.dtype))
