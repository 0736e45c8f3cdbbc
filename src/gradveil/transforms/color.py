"""Operations on color, as PIL does them.

Color, contrast, sharpness and brightness are PIL's ImageEnhance with the factor 1 + amount: each blends the picture
with a poorer version of itself (gray, flat, blurred, black), or away from it. Posterize, solarize, autocontrast,
equalize and invert are PIL's ImageOps: they map each level to another.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.transforms.rounding import (
    WHITE,
    Amounts,
    Levels,
    Pictures,
    in_place_of,
    levels,
    per_image,
    pictures,
    round_down,
    truncate,
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
    return pictures(round_down(levels(images) / step) * step, images)


def autocontrast(images: Pictures, amount: Amounts) -> Pictures:
    """Stretches every channel to 0 to 255; a channel with one level stays as it is."""
    image = levels(images)
    low, high = (end(dim=(2, 3), keepdim=True).double() for end in (image.amin, image.amax))
    flat = high <= low
    span = torch.where(flat, WHITE, high - low)  # of a flat channel: stretched by 1
    scale = torch.full_like(span, WHITE) / span  # a plain 255 would be multiplied by 1 / span
    offset = torch.where(flat, 0, -low * scale)
    # float64 and this order, as in PIL: the highest level may end at 254.99..., which is cut off to 254
    return pictures(truncate(image.double().mul_(scale).add_(offset)), images)


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


RED, GREEN, BLUE = 19595, 38470, 7471  # of 65536: what PIL takes for 0.299, 0.587 and 0.114


def color(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(_blend(_luminance(image), image, amount), images)


def contrast(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(_blend(_flat(image), image, amount), images)


def sharpness(images: Pictures, amount: Amounts) -> Pictures:
    """The border, and a picture too small to have anything else, stay as they are: PIL's blur leaves them out."""
    image = levels(images)
    height, width = image.shape[2:]
    if min(height, width) < 3:
        return pictures(image, images)
    inner = _blend(_smooth(image), image[:, :, 1:-1, 1:-1], amount)
    rows = torch.slice_scatter(image[:, :, 1:-1], inner, 3, 1, width - 1)
    return pictures(torch.slice_scatter(image, rows, 2, 1, height - 1), images)


def brightness(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(truncate(image * _factor(amount)), images)


def _blend(poorer: Levels, image: Levels, amount: Amounts) -> Levels:
    # float32, and a product and a sum of their own, as PIL has it: what is cut off depends on the last bit
    return truncate(((image - poorer) * _factor(amount)).add_(poorer))


def _factor(amount: Amounts) -> Float[Tensor, "image 1 1 1"]:
    return per_image(1 + amount.double())


def _luminance(image: Levels) -> Float[Tensor, "image 1 height width"]:
    """PIL's "L". All whole numbers are below 2^24, so float32 is exact."""
    if image.shape[1] == 1:
        return image
    if image.shape[1] != 3:
        raise ConfigError(f"pictures have {image.shape[1]} channels: color and contrast take 1 or 3")
    red, green, blue = image.split(1, dim=1)
    return round_down((red * RED + green * GREEN + blue * BLUE + 32768) / 65536)


def _flat(image: Levels) -> Float[Tensor, "image 1 1 1"]:
    """The mean luminance as a whole level."""
    # rows first: the sum of a row is exact in float32, that of a large picture is not
    total = _luminance(image).sum(3, keepdim=True).sum(2, keepdim=True, dtype=torch.float64)
    height, width = image.shape[2:]
    pixels = height * width
    # the quarter is less than any difference of whole numbers here: a quotient on the edge does not fall off
    return round_down((total + pixels / 2 + 0.25) / pixels).float()


def _smooth(image: Levels) -> Levels:
    """PIL's SMOOTH, without the border: the mean of 3 x 3 pixels with the middle one five times."""
    rows = (image[:, :, :-2] + image[:, :, 1:-1]).add_(image[:, :, 2:])
    square = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    return round_down(square.add_(image[:, :, 1:-1, 1:-1], alpha=4).div_(13).add_(0.5))
