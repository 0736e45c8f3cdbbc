"""Pictures of the user's own: one folder per class."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.base import Dataset, check_channels, check_positive, from_bytes, one_hot, statistics
from gradveil.data.picture_files import SUFFIXES, Source, in_turns, stack_pictures


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
    found = in_turns([_pictures(place, Path(root)) for place in classes])[:limit]
    sources = [Source(path, path.name, partial(Path, path)) for path in found]
    images = from_bytes(stack_pictures(sources, size, channels, "image-folder"))
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
