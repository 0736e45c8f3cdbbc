"""Shear as PIL does it with BICUBIC, each picture by a slope of its own. Black comes in.

PIL's cubic has a = -1, takes the pixel of the border where a tap lies outside, and cuts the result off to a whole
level. A shear moves along one axis only, so that the cubic in two dimensions is one in one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.transforms.rounding import Amounts, Levels, Pictures, levels, pictures, truncated


def shear_x(images: Pictures, amount: Amounts) -> Pictures:
    return pictures(_sheared(levels(images), amount), images)


def shear_y(images: Pictures, amount: Amounts) -> Pictures:
    upright = levels(images).transpose(2, 3).contiguous()  # neighbors in memory are read several times faster
    return pictures(_sheared(upright, amount).transpose(2, 3).contiguous(), images)


def _sheared(image: Levels, amount: Amounts) -> Levels:
    """Rows slide by the slope times their distance from the top."""
    place, width = _places(amount, *image.shape[2:]), image.shape[3]
    inside = ((place >= 0) & (place < width)).to(image.dtype)
    base = (place - 0.5).floor()
    between, column = place - 0.5 - base, base.long()
    taps = [(column + offset).clamp(0, width - 1) for offset in (-1, 0, 1, 2)]
    # channel by channel: a batch in float64 is slow to find memory for
    found = [_cubic([channel.gather(3, tap) for tap in taps], between) for channel in image.split(1, dim=1)]
    return torch.cat(found, dim=1) * inside


def _places(amount: Amounts, height: int, width: int) -> Float[Tensor, "image 1 height width"]:
    down, right = (torch.arange(size, device=amount.device, dtype=torch.float64) + 0.5 for size in (height, width))
    return right + amount.double()[:, None, None, None] * down[:, None]


def _cubic(pixels: list[Tensor], between: Tensor) -> Levels:
    """In float64, and each product and sum for itself in PIL's order: what is cut off depends on the last bit."""
    before, left, right, after = pixels
    fall, rise, slope = before - left, right - after, right - before
    value = (-fall - rise).double()
    for coefficient in (2 * fall + rise, slope, left):
        value = value.mul_(between).add_(coefficient)
    return truncated(value)
