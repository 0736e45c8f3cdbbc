"""CIFAR-100 as zip files of lossless WebP mosaics: one mosaic per class, 20 columns, labels in the official order."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.base import check_labels
from gradveil.data.npz import read_arrays
from gradveil.data.picture_files import read_picture

LABELS = "cifar100_labels.npz"
ARCHIVES = {"train": tuple(f"cifar100_train_{k}.zip" for k in range(3)), "test": ("cifar100_test.zip",)}
TOTAL = {"train": 50_000, "test": 10_000}
SIDE, COLUMNS = 32, 20
LARGEST_MEMBER = 4 * 2**20  # a mosaic has about 1 MB


def read_mosaics(
    root: Path, split: str, limit: int | None, classes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (n, 3, 32, 32) and labels in the official order; decodes only what `limit` and `classes` leave.

    Archives lie in the order of the classes: those behind the last one that is needed are not opened.
    """
    labels = _labels(root / LABELS, split)
    kept = labels[labels < classes][:limit] if classes is not None else labels[:limit]
    pictures = np.zeros((len(kept), SIDE, SIDE, 3), np.uint8)
    missing = set(kept.tolist())
    for archive in ARCHIVES[split]:
        if not missing:
            break
        for label, raw, where in _members(root / archive, missing):
            tiles = _tiles(raw, int((labels == label).sum()), where)
            pictures[kept == label] = tiles[: int((kept == label).sum())]
            missing.remove(label)
    if missing:
        raise ConfigError(f"{root}: no mosaic of class {min(missing)} for the {split} split, copy the archives again")
    return pictures.transpose(0, 3, 1, 2), kept


def _labels(path: Path, split: str) -> np.ndarray:
    labels = read_arrays(path, (f"y_{split}",))[f"y_{split}"]
    if labels.shape != (TOTAL[split],) or labels.dtype != np.uint8:
        raise ConfigError(f"{path}: y_{split} is {labels.dtype} {labels.shape}, expected uint8 ({TOTAL[split]},)")
    check_labels(path, labels, 100)
    return labels


def _members(archive: Path, wanted: set[int]) -> Iterator[tuple[int, bytes, str]]:
    """Label, bytes and name of each wanted mosaic; the name begins with the label's two digits."""
    try:
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                number = Path(member.filename).name[:2]
                if not number.isdecimal() or int(number) not in wanted:
                    continue
                where = f"{archive}: {member.filename}"
                if member.file_size > LARGEST_MEMBER:
                    raise ConfigError(f"{where}: {member.file_size:,} bytes, more than a mosaic has; copy it again")
                yield int(number), file.read(member), where
    except (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise ConfigError(f"{archive}: missing or damaged ({error}), copy it again") from error


def _tiles(raw: bytes, count: int, where: str) -> np.ndarray:
    pixels = np.asarray(read_picture(BytesIO(raw), 3, where))
    rows = count // COLUMNS
    if pixels.shape != (rows * SIDE, COLUMNS * SIDE, 3):
        raise ConfigError(f"{where}: {pixels.shape} is not a mosaic of {count} pictures, copy the archive again")
    grid = pixels.reshape(rows, SIDE, COLUMNS, SIDE, 3)
    return grid.transpose(0, 2, 1, 3, 4).reshape(count, SIDE, SIDE, 3)
