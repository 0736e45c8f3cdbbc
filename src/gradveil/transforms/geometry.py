"""Translation, rotation and shear as PIL does them, each picture by an amount of its own.

Translation and rotation move pixels and round none. Masks are multiplied in, which torch does many times faster than
`where`. Coordinates are in float64, as in PIL: whether a pixel is inside can depend on the last bit, so give amounts in
float64 where PIL's result is wanted to the last pixel. Shear interpolates as PIL's BICUBIC: its cubic has a = -1, takes
the pixel of the border where a tap lies outside, and cuts the result off to a whole level; a shear moves along one axis
only, so the cubic in two dimensions is one in one.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gradveil.transforms.rounding import Amounts, Levels, Pictures, levels, pictures, truncate

GREY = 128 / 255
FIXED = 65536  # PIL's affine map counts in 1/65536 of a pixel


def translate_x(images: Pictures, amount: Amounts) -> Pictures:
    """By a fraction of the width; a positive one takes pixels from the right. Black comes in."""
    width = images.shape[3]
    source, inside = _shift(amount, width)
    index = source[:, None, None].expand_as(images)
    return images.gather(3, index) * inside.to(images.dtype)[:, None, None]


def translate_y(images: Pictures, amount: Amounts) -> Pictures:
    """By a fraction of the height; a positive one takes pixels from below. Black comes in."""
    count, channels, height, _ = images.shape
    source, inside = _shift(amount, height)
    first_rows = torch.arange(count * channels, device=images.device).view(count, channels, 1) * height
    rows = (first_rows + source[:, None]).flatten()
    found = images.flatten(0, 2).index_select(0, rows).view_as(images)  # whole rows: faster than pixel by pixel
    return found * inside.to(images.dtype)[:, None, :, None]


def rotate(images: Pictures, amount: Amounts) -> Pictures:
    """Counterclockwise in degrees, nearest pixel.

    AutoAugment rotates with an alpha channel and lays the result over (128, 128, 128, 128). The nearest pixel has an
    alpha of 255 or 0, so nothing is blended: in RGB, what comes in is 128 gray, and the rest is as it was.
    """
    row, column = _rotation(amount, *images.shape[2:])
    return move_pixels(images, row[:, None], column[:, None], GREY)


def move_pixels(images: Pictures, row: Tensor, column: Tensor, fill: float = 0.0) -> Pictures:
    """Each pixel from a row and a column of its own picture, or the fill where there is none."""
    height, width = images.shape[2:]
    clamped_row, clamped_column = row.clamp(0, height - 1), column.clamp(0, width - 1)
    inside = ((row == clamped_row) & (column == clamped_column)).to(images.dtype)
    source = (clamped_row * width + clamped_column).long()
    index = source.flatten(2).expand(-1, images.shape[1], -1)
    found = images.flatten(2).gather(2, index).unflatten(2, source.shape[2:]) * inside
    return found + (1 - inside) * fill if fill else found


def _shift(amount: Amounts, size: int) -> tuple[Int[Tensor, "image size"], Tensor]:
    """Where each place comes from, and whether that is inside: PIL starts half a pixel in, and so rounds the shift."""
    shift = (amount.double() * size + 0.5).floor().long()
    source = shift[:, None] + torch.arange(size, device=amount.device)
    clamped = source.clamp(0, size - 1)
    return clamped, source == clamped


def _rotation(amount: Amounts, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Row and column [image, height, width] that each pixel comes from, in PIL's fixed point."""
    angle = -torch.deg2rad(amount.double() % 360)[:, None, None]
    cos, sin = (angle.cos() * 1e15).round() / 1e15, (angle.sin() * 1e15).round() / 1e15
    x, y = width / 2, height / 2
    first_column = _to_fixed((cos * -x + sin * -y) + x + cos * 0.5 + sin * 0.5)
    first_row = _to_fixed((-sin * -x + cos * -y) + y - sin * 0.5 + cos * 0.5)
    down = torch.arange(height, device=amount.device, dtype=torch.int32)[:, None]
    right = torch.arange(width, device=amount.device, dtype=torch.int32)
    column = first_column + _to_fixed(cos) * right + _to_fixed(sin) * down
    row = first_row + _to_fixed(-sin) * right + _to_fixed(cos) * down
    return row >> 16, column >> 16


def _to_fixed(value: Tensor) -> Tensor:
    return (value * FIXED + 0.5).floor().int()


def shear_x(images: Pictures, amount: Amounts) -> Pictures:
    return pictures(_shear_rows(levels(images), amount), images)


def shear_y(images: Pictures, amount: Amounts) -> Pictures:
    upright = levels(images).transpose(2, 3).contiguous()  # neighbors in memory are read several times faster
    return pictures(_shear_rows(upright, amount).transpose(2, 3).contiguous(), images)


def _shear_rows(image: Levels, amount: Amounts) -> Levels:
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
    return truncate(value)
