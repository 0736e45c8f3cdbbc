"""Color, contrast, sharpness and brightness: PIL's ImageEnhance with the factor 1 + amount.

Each blends the picture with a poorer version of itself (gray, flat, blurred, black), or away from it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.transforms.rounding import Amounts, Levels, Pictures, floored, levels, per_image, pictures, truncated

RED, GREEN, BLUE = 19595, 38470, 7471  # of 65536: what PIL takes for 0.299, 0.587 and 0.114


def color(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(_blended(_luminance(image), image, amount), images)


def contrast(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(_blended(_flat(image), image, amount), images)


def sharpness(images: Pictures, amount: Amounts) -> Pictures:
    """The border, and a picture too small to have anything else, stay as they are: PIL's blur leaves them out."""
    image = levels(images)
    height, width = image.shape[2:]
    if min(height, width) < 3:
        return pictures(image, images)
    inner = _blended(_smooth(image), image[:, :, 1:-1, 1:-1], amount)
    rows = torch.slice_scatter(image[:, :, 1:-1], inner, 3, 1, width - 1)
    return pictures(torch.slice_scatter(image, rows, 2, 1, height - 1), images)


def brightness(images: Pictures, amount: Amounts) -> Pictures:
    image = levels(images)
    return pictures(truncated(image * _factor(amount)), images)


def _blended(poorer: Levels, image: Levels, amount: Amounts) -> Levels:
    # float32, and a product and a sum of their own, as PIL has it: what is cut off depends on the last bit
    return truncated(((image - poorer) * _factor(amount)).add_(poorer))


def _factor(amount: Amounts) -> Float[Tensor, "image 1 1 1"]:
    return per_image(1 + amount.double())


def _luminance(image: Levels) -> Float[Tensor, "image 1 height width"]:
    """PIL's "L". All whole numbers are below 2^24, so float32 is exact."""
    if image.shape[1] == 1:
        return image
    if image.shape[1] != 3:
        raise ConfigError(f"pictures have {image.shape[1]} channels: color and contrast take 1 or 3")
    red, green, blue = image.split(1, dim=1)
    return floored((red * RED + green * GREEN + blue * BLUE + 32768) / 65536)


def _flat(image: Levels) -> Float[Tensor, "image 1 1 1"]:
    """The mean luminance as a whole level."""
    # rows first: the sum of a row is exact in float32, that of a large picture is not
    total = _luminance(image).sum(3, keepdim=True).sum(2, keepdim=True, dtype=torch.float64)
    height, width = image.shape[2:]
    pixels = height * width
    # the quarter is less than any difference of whole numbers here: a quotient on the edge does not fall off
    return floored((total + pixels / 2 + 0.25) / pixels).float()


def _smooth(image: Levels) -> Levels:
    """PIL's SMOOTH, without the border: the mean of 3 x 3 pixels with the middle one five times."""
    rows = (image[:, :, :-2] + image[:, :, 1:-1]).add_(image[:, :, 2:])
    square = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    return floored(square.add_(image[:, :, 1:-1, 1:-1], alpha=4).div_(13).add_(0.5))
