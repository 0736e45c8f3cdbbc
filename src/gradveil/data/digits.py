"""The 8x8 handwritten digits that come with scikit-learn (UCI, Alpaydin and Kaynak, 1998). Works offline."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from gradveil.core.errors import ConfigError
from gradveil.data.base import Dataset, check_amount, check_channels, check_positive, check_split, one_hot, statistics

DARKEST = 16  # pixels are counts from 0 to 16
TRAIN = 1437  # the first four fifths of the 1,797, in the file's order: nobody has fixed a split


def digits(*, split: str = "test", limit: int | None = None, size: int = 32, channels: int = 1) -> Dataset:
    """Handwritten digits of scikit-learn, 8x8 pixels, enlarged; needs no files."""
    check_split("digits", split)
    check_positive("digits", limit=limit, size=size)
    check_channels("digits", channels)
    table = _table()
    check_amount("digits: size", (len(table), channels, size, size))
    part = (table[:TRAIN] if split == "train" else table[TRAIN:])[:limit]
    small = torch.from_numpy(part[:, :-1]).float().view(-1, 1, 8, 8) / DARKEST
    images = F.interpolate(small, size=(size, size), mode="bilinear", align_corners=False)
    mean, std = statistics(torch.from_numpy(table[:, :-1]).float().view(-1, 1, 8, 8) / DARKEST)
    return Dataset(
        name="digits",
        images=images.repeat(1, channels, 1, 1),
        targets=one_hot(part[:, -1], 10),
        class_names=tuple("0123456789"),
        mean=mean * channels,
        std=std * channels,
    )


def _table() -> np.ndarray:
    """1,797 rows of 64 pixels and the digit. The package is found, not imported, which would take a second."""
    spec = importlib.util.find_spec("sklearn")
    path = Path(spec.origin).parent / "datasets/data/digits.csv.gz" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise ConfigError("digits: scikit-learn or its file digits.csv.gz is missing, install scikit-learn")
    return np.loadtxt(path, delimiter=",").astype(np.int64)
