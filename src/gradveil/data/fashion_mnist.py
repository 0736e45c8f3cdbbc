"""Fashion-MNIST (Xiao et al., 2017), from its idx files, gzipped or not.

Constants are the data's own; ATS (Gao et al., CVPR 2021) normalized it with MNIST's 0.1307 and 0.3081.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch.nn.functional as F

from gradveil.core.errors import ConfigError
from gradveil.data.base import (
    Dataset,
    check_amount,
    check_labels,
    check_positive,
    check_split,
    from_bytes,
    one_hot,
)

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
MOST, SIDE = 60_000, 28
PREFIX = {"train": "train", "test": "t10k"}
UNSIGNED_BYTES = 0x08  # the third byte of the magic number: the type; the fourth is the number of dimensions
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # apt install dataset-fashion-mnist
PAGE = "https://github.com/zalandoresearch/fashion-mnist"


def fashion_mnist(
    *, root: str | Path | None = None, split: str = "test", limit: int | None = None, size: int = 32
) -> Dataset:
    """Fashion-MNIST, gray, 10 classes, enlarged from 28x28; needs its idx files in `root` or Debian's package."""
    check_split("fashion-mnist", split)
    check_positive("fashion-mnist", limit=limit, size=size)
    folder = _folder(root, split)
    pictures = read_idx(_file(folder, f"{PREFIX[split]}-images-idx3-ubyte"), (MOST, SIDE, SIDE))
    path = _file(folder, f"{PREFIX[split]}-labels-idx1-ubyte")
    labels = read_idx(path, (MOST,))
    if len(labels) != len(pictures):
        raise ConfigError(f"{path}: {len(labels)} labels for {len(pictures)} pictures, fetch the files again")
    check_labels(path, labels, len(CLASSES))
    check_amount("fashion-mnist: size", (len(pictures), size, size))
    images = from_bytes(pictures[:limit, None])
    return Dataset(
        name="fashion-mnist",
        images=F.interpolate(images, size=(size, size), mode="bilinear", align_corners=False, antialias=True),
        targets=one_hot(labels[:limit], len(CLASSES)),
        class_names=CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
    )


def read_idx(path: Path, most: tuple[int, ...]) -> np.ndarray:
    """An idx file of unsigned bytes: `most` rows, and exactly the other sides. The header is checked first."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _header(path, file.read(4 + 4 * len(most)), most)
            expected = prod(shape)
            content = file.read(expected + 1)  # one more, to notice a file that is too long
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: damaged or truncated ({error}), fetch it again from {PAGE}") from error
    if len(content) != expected:
        more = "more" if len(content) > expected else f"{len(content):,}"
        raise ConfigError(
            f"{path}: header promises {expected:,} bytes, the file has {more}; fetch it again from {PAGE}"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)


def _header(path: Path, header: bytes, most: tuple[int, ...]) -> tuple[int, ...]:
    if len(header) < 4 + 4 * len(most) or header[:4] != bytes((0, 0, UNSIGNED_BYTES, len(most))):
        raise ConfigError(f"{path}: not an idx file of {len(most)}-dimensional bytes, fetch it again from {PAGE}")
    shape = struct.unpack(f">{len(most)}I", header[4:])
    if not 1 <= shape[0] <= most[0] or shape[1:] != most[1:]:
        promised, limit = (" x ".join(map(str, sides)) for sides in (shape, most))
        raise ConfigError(
            f"{path}: header promises {promised}, Fashion-MNIST has {limit} at most; fetch it from {PAGE}"
        )
    return shape


def _folder(root: str | Path | None, split: str) -> Path:
    """The given folder, torchvision's `raw` inside it, or where Debian's package puts the files."""
    given = [Path(root)] if root is not None else [Path("data/fashion-mnist"), DEBIAN]
    for folder in given:
        for place in (folder, folder / "FashionMNIST/raw"):
            if next(place.glob(f"{PREFIX[split]}-images-idx3-ubyte*"), None):
                return place
    looked = " and ".join(map(str, given))
    raise ConfigError(f"fashion-mnist: no idx files in {looked}, put the four files of {PAGE} there or give root=")


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ConfigError(f"{folder / name}: no such file, plain or with .gz; fetch it from {PAGE}")
