"""Pictures of the user's own: one folder per class."""

from __future__ import annotations

import os
from itertools import zip_longest
from pathlib import Path

import numpy as np
from PIL import Image

from gradveil.data.base import (
    Dataset,
    check_amount,
    check_channels,
    check_positive,
    from_bytes,
    one_hot,
    statistics,
)
from gradveil.data.picture import read_picture, square
from gradveil.errors import ConfigError

SUFFIXES = (".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


def image_folder(
    *,
    root: str | Path,
    size: int | None = None,
    channels: int = 3,
    split: str = "test",
    limit: int | None = None,
) -> Dataset:
    """Your pictures, one folder per class (ROOT/class/*.png); `size` crops to the center square and resizes."""
    check_positive("image-folder", size=size, limit=limit)
    check_channels("image-folder", channels)
    folder = _split_folder(Path(root), split)
    classes = _classes(folder, Path(root))
    found = _round_robin([_pictures(place, Path(root)) for place in classes])[:limit]
    images = from_bytes(_read(found, size, channels))
    mean, std = statistics(images)
    return Dataset(
        name=Path(root).resolve().name,
        images=images,
        targets=one_hot(np.array([classes.index(path.parent) for path in found]), len(classes)),
        class_names=tuple(place.name for place in classes),
        mean=mean,
        std=std,
    )


def _split_folder(root: Path, split: str) -> Path:
    """ROOT/train or ROOT/test where both are there, otherwise ROOT itself is the only split."""
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder, put pictures into {root}/<class>/ or give another root")
    if all((root / name).is_dir() for name in ("train", "test")):
        if not (root / split).is_dir():
            raise ConfigError(f"{root}: no split {split!r} here, choose train or test")
        return root / split
    return root


def _classes(folder: Path, root: Path) -> list[Path]:
    entries = _entries(folder, root)
    for path in entries:
        if path.suffix.lower() in SUFFIXES and not path.is_dir():
            raise ConfigError(f"{path}: a picture outside of the class folders, put it into one or remove it")
    classes = [path for path in entries if path.is_dir()]
    if not classes:
        raise ConfigError(f"{folder}: no class folders here, put pictures into {folder}/<class>/")
    return classes


def _pictures(place: Path, root: Path) -> list[Path]:
    """Sorted. A file of another kind is an error: left out in silence, it would be missing from the audit."""
    files = _entries(place, root)
    for path in files:
        if not path.is_file():
            raise ConfigError(f"{path}: not a file, a class folder holds pictures alone; move or remove it")
        if path.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"{path}: not one of {', '.join(SUFFIXES)}; convert or remove it")
    if not files:
        raise ConfigError(f"{place}: no pictures in this class, add some or remove the folder")
    return files


def _entries(folder: Path, root: Path) -> list[Path]:
    """What is not hidden, sorted. A link must not lead out: a folder from elsewhere could show your own pictures."""
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in (folder, *entries):
        if path.is_symlink() and path != root and not Path(os.path.realpath(path)).is_relative_to(root.resolve()):
            raise ConfigError(f"{path}: a link that leads out of {root}, copy the pictures into the folder instead")
    return entries


def _round_robin(classes: list[list[Path]]) -> list[Path]:
    """The first of every class, then the second: any number of pictures from the front has all classes."""
    return [path for turn in zip_longest(*classes) for path in turn if path is not None]


def _read(paths: list[Path], size: int | None, channels: int) -> np.ndarray:
    if size is not None:
        check_amount("image-folder: size", (len(paths), channels, size, size))
    first = _fitted(paths[0], size, channels)
    check_amount(paths[0].parent.parent, (len(paths), channels, first.height, first.width))
    pixels = np.zeros((len(paths), first.height, first.width, channels), np.uint8)
    for row, path in zip(pixels, paths, strict=True):
        image = _fitted(path, size, channels)
        if image.size != first.size:
            raise ConfigError(
                f"{path}: {image.width}x{image.height} pixels, but {paths[0].name} has {first.width}x{first.height}; "
                "give size= to crop and resize them all"
            )
        row[:] = np.asarray(image).reshape(row.shape)
    return pixels.transpose(0, 3, 1, 2)


def _fitted(path: Path, size: int | None, channels: int) -> Image.Image:
    image = read_picture(path, channels, path)
    return image if size is None else square(image, size)
