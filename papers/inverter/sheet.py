"""Rows of pictures with their names, one PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

SHOWN, SCALE, GAP, TEXT = 12, 2, 2, 260


class Sheet:
    """The first pictures of everything that was added, row by row."""

    def __init__(self, file: Path) -> None:
        self.file, self.rows = file, {}

    def add(self, name: str, images: Tensor) -> None:
        self.rows[name] = images[:SHOWN].detach().float().clamp(0, 1).cpu()

    def save(self) -> None:
        side = SCALE * next(iter(self.rows.values())).shape[-1] + GAP
        sheet = Image.new("RGB", (TEXT + SHOWN * side, len(self.rows) * side), "white")
        pen = ImageDraw.Draw(sheet)
        for row, (name, images) in enumerate(self.rows.items()):
            pen.text((4, row * side + side // 2 - 6), name, fill="black")
            for column, image in enumerate(images):
                pixels = (255 * image.permute(1, 2, 0)).round().byte().numpy()
                large = np.repeat(np.repeat(pixels, SCALE, 0), SCALE, 1)
                sheet.paste(Image.fromarray(large), (TEXT + column * side, row * side))
        sheet.save(self.file, optimize=True)
