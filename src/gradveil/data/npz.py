"""Pictures of the user's own as NumPy arrays. See `arrays.py` for what is checked before one is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.arrays import array_names, read_arrays
from gradveil.data.base import Dataset, check_amount, check_positive, check_split, from_bytes, one_hot, statistics

SHAPES = "uint8 (N, H, W, C) or (N, H, W), or float (N, C, H, W) in [0, 1]"
MOST_CLASSES = 100_000


def npz(*, path: str | Path, split: str = "test", limit: int | None = None) -> Dataset:
    """Your pictures in one .npz: `images`, `labels` and, if you like, `class_names`; or `test_images` and so on."""
    path = Path(path)
    check_split("npz", split)
    check_positive("npz", limit=limit)
    arrays = _arrays(path, split)
    images = _images(path, arrays["images"], limit)
    targets = _targets(path, arrays["labels"], len(arrays["images"]))
    names = _class_names(path, arrays.get("class_names"), targets.shape[1])
    mean, std = statistics(images)
    return Dataset(
        name=path.stem,
        images=images,
        targets=targets[:limit],
        class_names=names,
        mean=mean,
        std=std,
        loss="cross-entropy" if bool((targets.sum(1) == 1).all()) else "binary-cross-entropy",
    )


def _arrays(path: Path, split: str) -> dict[str, np.ndarray]:
    """The arrays of this split by plain name."""
    prefix = f"{split}_" if f"{split}_images" in array_names(path) else ""
    arrays = read_arrays(path, (f"{prefix}images", f"{prefix}labels"), optional=("class_names",))
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


def _images(path: Path, images: np.ndarray, limit: int | None) -> Tensor:
    if images.dtype == np.uint8 and images.ndim in (3, 4):
        images = images[..., None] if images.ndim == 3 else images
        _check_shape(path, images.shape, channels=images.shape[-1])
        return from_bytes(images[:limit].transpose(0, 3, 1, 2))
    if images.dtype.kind == "f" and images.ndim == 4:
        _check_shape(path, images.shape, channels=images.shape[1])
        _check_range(path, images[:limit])
        return torch.from_numpy(images[:limit].astype(np.float32))
    raise ConfigError(f"{path}: images are {images.dtype} {images.shape}, expected {SHAPES}")


def _check_shape(path: Path, shape: tuple[int, ...], channels: int) -> None:
    if 0 in shape:
        raise ConfigError(f"{path}: images are {shape}, there is no picture in them; expected {SHAPES}")
    if channels not in (1, 3):
        raise ConfigError(f"{path}: images are {shape}, so {channels} channels instead of 1 or 3; expected {SHAPES}")


def _check_range(path: Path, images: np.ndarray) -> None:
    bad = int((~np.isfinite(images)).sum())
    if bad:
        raise ConfigError(f"{path}: images have {bad} numbers that are NaN or infinite, mend or remove those pictures")
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        raise ConfigError(f"{path}: images run from {low:g} to {high:g}, scale them to [0, 1] (undo normalization)")


def _targets(path: Path, labels: np.ndarray, count: int) -> Tensor:
    """Class numbers (N,) or (N, 1), or a table (N, classes) of 0 and 1 for several labels at once."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape[:1] != (count,) or labels.ndim > 2 or 0 in labels.shape:
        raise ConfigError(f"{path}: labels have shape {labels.shape} for {count} images, expected one row per image")
    if labels.ndim == 2:
        if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
            raise ConfigError(f"{path}: labels are a table, so every entry must be 0 or 1; save class numbers or 0/1")
        return torch.from_numpy(labels.astype(np.float32))
    if labels.dtype.kind not in "iu":
        raise ConfigError(f"{path}: labels are {labels.dtype}, expected whole numbers from 0 (class numbers)")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= MOST_CLASSES:
        limits = f"whole numbers from 0 to {MOST_CLASSES - 1}"
        raise ConfigError(f"{path}: labels run from {low} to {high}, expected {limits} (class numbers)")
    check_amount(f"{path}: labels", (count, high + 1))  # one-hot, a high label is a wide table
    return one_hot(labels, high + 1)


def _class_names(path: Path, names: np.ndarray | None, classes: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(classes)))
    if names.shape != (classes,) or names.dtype.kind not in "Uiu":
        raise ConfigError(f"{path}: class_names is {names.dtype} {names.shape}, the labels need ({classes},) texts")
    if not all(str(name).isprintable() for name in names):
        raise ConfigError(f"{path}: class_names has a name with a line break or control letter, rename that class")
    return tuple(map(str, names))
