"""Pictures and masks to try the U-Net on: crops of gradveil's photographs, their dark, middle and bright parts.

python make_pictures.py FOLDER [COUNT [SIDE]]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from gradveil import data


def write_pictures(folder: Path, count: int, side: int) -> None:
    images = data.load("photos", size=side, limit=count).images.numpy()
    for name in ("pictures", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        pixels = (255 * image.transpose(1, 2, 0)).round().astype(np.uint8)
        gray = image.mean(0)
        mask = np.digitize(gray, np.quantile(gray, [1 / 3, 2 / 3])).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{number:04d}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number:04d}.png")


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]), *(int(text) for text in sys.argv[2:] or ("200", "32")))
