"""Pictures of the user's own: one folder per class."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.base import Dataset, check_channels, check_positive, one_hot, statistics
from gradveil.data.fit import Crop, Fit, Resize
from gradveil.data.levels import parse_range
from gradveil.data.masks import check_folder, load_masks
from gradveil.data.medical import suffix_of
from gradveil.data.picture_files import SUFFIXES, Reading, Source, stack_pictures, take


def image_folder(
    *,
    root: str | Path,
    size: int | None = None,
    channels: int = 3,
    split: str = "test",
    limit: int | None = None,
    resize: Resize = "lanczos",
    crop: Crop = "center",
    short_side: int | None = None,
    range: str | None = None,
    plane: int | None = None,
    masks: str | None = None,
) -> Dataset:
    """Your pictures, one folder per class (ROOT/class/*.png); `size` crops to the center square and resizes.

    resize: The filter: lanczos, bicubic (Pillow's own default), bilinear (torchvision's), box or nearest.
    crop: `center` before resizing, `none` (the whole picture becomes the square), or `resize-first`.
    short_side: With `resize-first`: the shorter side before the crop, 256 where 224 is cropped; `size` by default.
    range: Of more than 8 bits: the numbers of black and white, as in `0,4095`; of DICOM after rescaling.
    plane: Slice of a NIfTI volume or frame of a DICOM file, from 0; the middle one by default.
    masks: Folder with a mask for every picture, of the same name; the pictures then lie in ROOT itself.
    """
    check_positive("image-folder", size=size, limit=limit, short_side=short_side)
    check_channels("image-folder", channels)
    check_folder(masks)
    folder = _split_folder(Path(root), split)
    classes = [folder] if masks else _classes(folder, Path(root))
    found = take([_pictures(place, Path(root)) for place in classes], limit)
    sources = [Source(path, path.name, partial(Path, path)) for path in found]
    fit = Fit(size=size, resize=resize, crop=crop, short_side=short_side)
    images = stack_pictures(sources, Reading(fit, channels, parse_range(range, "image-folder"), plane), "image-folder")
    mean, std = statistics(images)
    if masks:
        height, width = images.shape[2:]
        targets, names = load_masks(_split_folder(Path(masks), split), found, fit, (height, width))
    else:
        targets = one_hot(np.array([classes.index(path.parent) for path in found]), len(classes))
        names = tuple(place.name for place in classes)
    return Dataset(
        name=Path(root).resolve().name,
        images=images,
        targets=targets,
        class_names=names,
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
        if suffix_of(path.name) in SUFFIXES and not path.is_dir():
            raise ConfigError(
                f"{path}: a picture outside of the class folders, put it into one, remove it, or give masks="
            )
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
        if suffix_of(path.name) not in SUFFIXES:
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
