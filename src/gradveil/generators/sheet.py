"""Samples of a generator on one sheet."""

from __future__ import annotations

from io import BytesIO

from PIL import Image
from torch import Tensor

from gradveil.transforms.picture import to_picture

GAP, SMALLEST = 2, 64  # pixels


def samples_sheet(pictures: Tensor, columns: int) -> bytes:
    """A PNG, row by row; small pictures are enlarged."""
    height, width = pictures.shape[-2:]
    times = max(1, SMALLEST // width)
    across, down = times * width + GAP, times * height + GAP
    sheet = Image.new("RGB", (columns * across + GAP, -(-len(pictures) // columns) * down + GAP), "white")
    for place, picture in enumerate(pictures):
        shown = to_picture(picture).resize((times * width, times * height), Image.Resampling.NEAREST)
        sheet.paste(shown, (GAP + place % columns * across, GAP + place // columns * down))
    content = BytesIO()
    sheet.save(content, "PNG")
    return content.getvalue()
