"""PIL's pictures to tensors and back, without a change."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.core.errors import ConfigError


def from_picture(picture: Image.Image) -> Tensor:
    """C x H x W in [0, 1]."""
    if picture.mode not in ("RGB", "L"):
        raise ConfigError(f"policy: a picture of mode {picture.mode}, convert it to RGB or L first")
    levels = torch.from_numpy(np.array(picture))
    return from_bytes(levels.unsqueeze(0) if levels.dim() == 2 else levels.movedim(-1, 0))


def to_picture(image: Tensor) -> Image.Image:
    levels = to_bytes(image.detach().cpu()).numpy()
    return Image.fromarray(levels[0] if len(levels) == 1 else np.ascontiguousarray(levels.transpose(1, 2, 0)))


def from_bytes(levels: Tensor) -> Tensor:
    return levels.float() / 255


def to_bytes(images: Tensor) -> Tensor:
    return (images * 255).round().clamp(0, 255).to(torch.uint8)


def picture_grid(pictures: Tensor, columns: int, gap: int = 2, side: int = 64) -> bytes:
    """A PNG of pictures [n, c, h, w], row by row; those of fewer than `side` pixels are enlarged."""
    height, width = pictures.shape[-2:]
    times = max(1, -(-side // width))
    across, down = times * width + gap, times * height + gap
    sheet = Image.new("RGB", (columns * across + gap, -(-len(pictures) // columns) * down + gap), "white")
    for place, picture in enumerate(pictures):
        enlarged = to_picture(picture).resize((times * width, times * height), Image.Resampling.NEAREST)
        sheet.paste(enlarged, (gap + place % columns * across, gap + place // columns * down))
    content = BytesIO()
    sheet.save(content, "PNG")
    return content.getvalue()
