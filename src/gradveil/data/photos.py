"""The built-in data: crops of photographs that come with scikit-image and scikit-learn. Works offline.

The photograph is the class. The first pictures are framed by hand, so that a person sees at a glance what an attack
recovered: a face, a cat, a cup of coffee. The crops after them make the gallery among which a reconstruction is sought.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.data.base import Dataset, check_amount, check_positive, check_split, from_bytes, one_hot, statistics
from gradveil.data.picture_files import read_picture

Pixel = int | float
Box = tuple[Pixel, Pixel, Pixel, Pixel]  # left, upper, right, lower


class Photograph(NamedTuple):
    """A file inside an installed package, and the crops that show best what is on it."""

    name: str
    package: str
    file: str
    framed: tuple[Box, ...]


PHOTOGRAPHS = (
    Photograph("astronaut", "skimage", "data/astronaut.png", ((155, 35, 300, 180), (0, 0, 512, 512))),
    Photograph("cat", "skimage", "data/chelsea.png", ((80, 0, 380, 300), (120, 55, 345, 280))),
    Photograph("coffee", "skimage", "data/coffee.png", ((100, 0, 500, 400), (140, 0, 460, 320))),
    Photograph("flower", "sklearn", "datasets/images/flower.jpg", ((140, 60, 450, 370), (190, 110, 410, 330))),
    Photograph("pagoda", "sklearn", "datasets/images/china.jpg", ((30, 10, 410, 390), (90, 10, 350, 270))),
    Photograph("rocket", "skimage", "data/rocket.jpg", ((160, 107, 480, 427), (217, 127, 417, 327))),
    Photograph("motorcycle", "skimage", "data/motorcycle_left.png", ((160, 0, 660, 500), (230, 60, 600, 430))),
    Photograph("retina", "skimage", "data/retina.jpg", ((0, 0, 1411, 1411), (60, 300, 760, 1000))),
)
SMALLEST, LARGEST = 0.35, 0.9  # side of a random crop, in short sides of its photograph
MOST = 100_000
PROPOSALS = 3  # the most varied of so many: plain sky and black margins show nothing


def photos(
    *, split: str = "test", count: int = 1304, size: int = 32, seed: int = 0, limit: int | None = None
) -> Dataset:
    """Built-in color photographs (a face, a cat, coffee, a flower, ...), cropped to squares; needs no files."""
    check_split("photos", split)
    check_positive("photos", count=count, size=size, limit=limit)
    amount = min(count, limit or count)
    if amount > MOST:
        raise ConfigError(f"photos: count is {amount:,} of eight photographs, the limit is {MOST:,}, ask for fewer")
    check_amount("photos: size", (amount, 3, size, size))
    labels = np.arange(amount) % len(PHOTOGRAPHS)  # round robin
    stream = Seed(seed).at("photos", split)
    pictures = [
        _picture(label, place // len(PHOTOGRAPHS), split, size, stream) for place, label in enumerate(labels.tolist())
    ]
    mean, std = statistics(torch.cat([_whole(photograph) for photograph in PHOTOGRAPHS]))
    return Dataset(
        name="photos",
        images=from_bytes(np.stack(pictures).transpose(0, 3, 1, 2)),
        targets=one_hot(labels, len(PHOTOGRAPHS)),
        class_names=tuple(photograph.name for photograph in PHOTOGRAPHS),
        mean=mean,
        std=std,
    )


def _picture(label: int, turn: int, split: str, size: int, stream: Seed) -> np.ndarray:
    """The framed crops come first in the test split and nowhere else; then random ones."""
    photograph = PHOTOGRAPHS[label]
    if split == "test" and turn < len(photograph.framed):
        return _crop(photograph, photograph.framed[turn], size)
    draws = torch.rand(PROPOSALS, 3, generator=stream.at(photograph.name, turn).rng()).tolist()
    image = _open(photograph)
    proposals = [_crop(photograph, _random_box(image, *draw), size) for draw in draws]
    picture = max(proposals, key=lambda pixels: float(pixels.std()))
    return picture[:, ::-1] if turn % 2 else picture


def _random_box(image: Image.Image, scale: float, across: float, down: float) -> Box:
    side = min(image.size) * (SMALLEST + (LARGEST - SMALLEST) * scale)
    left, upper = across * (image.width - side), down * (image.height - side)
    return left, upper, left + side, upper + side


def _crop(photograph: Photograph, box: Box, size: int) -> np.ndarray:
    return np.asarray(_open(photograph).resize((size, size), Image.Resampling.LANCZOS, box=box, reducing_gap=3.0))


def _whole(photograph: Photograph) -> Tensor:
    """The photograph at 64x64: constants that do not depend on how many crops are asked for."""
    image = _open(photograph)
    return from_bytes(_crop(photograph, (0, 0, *image.size), 64)[None].transpose(0, 3, 1, 2))


@cache
def _open(photograph: Photograph) -> Image.Image:
    path = _folder(photograph.package) / photograph.file
    if not path.is_file():
        raise ConfigError(f"photos: {path} is missing, install scikit-image and scikit-learn again")
    return read_picture(path, 3, path)


def _folder(package: str) -> Path:
    """Where the package lies; it is found, not imported, which would take a second."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"photos: the package {package} is missing, install scikit-image and scikit-learn")
    return Path(spec.origin).parent
