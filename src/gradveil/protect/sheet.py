"""Pictures above their encodings, on one sheet."""

from __future__ import annotations

from io import BytesIO

from PIL import Image
from torch import Tensor

from gradveil.transforms.picture import to_picture

GAP, SMALLEST = 4, 96  # pixels


def before_and_after(before: Tensor, after: Tensor) -> bytes:
    """A PNG: one column per picture, the picture above and what became of it below."""
    height, width = before.shape[-2:]
    times = max(1, -(-SMALLEST // width))
    across, down = times * width + GAP, times * height + GAP
    sheet = Image.new("RGB", (len(before) * across + GAP, 2 * down + GAP), "white")
    for row, pictures in enumerate((before, after)):
        for column, picture in enumerate(pictures):
            shown = to_picture(picture).resize((times * width, times * height), Image.Resampling.NEAREST)
            sheet.paste(shown, (GAP + column * across, GAP + row * down))
    content = BytesIO()
    sheet.save(content, "PNG")
    return content.getvalue()
