"""Pictures of the user's own in one zip: classes by `labels.csv`, or by the folders inside.

A folder with a `labels.csv` is read in the same way. Nothing is unpacked: see `archive.py` for what is checked.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.archive import Files, open_files
from gradveil.data.base import Dataset, check_channels, check_positive, check_split, one_hot, statistics
from gradveil.data.fit import Crop, Fit, Resize
from gradveil.data.levels import parse_range
from gradveil.data.medical import suffix_of
from gradveil.data.picture_files import SUFFIXES, Reading, Source, stack_pictures, take

LABELS, WORDS = "labels.csv", "classes.csv"
MOST_CLASSES = 10_000
SPLITS = {"train": ("train",), "test": ("test", "val")}  # how folders of a split are called


def image_zip(
    *,
    root: str | Path,
    label: str = "label",
    size: int | None = None,
    channels: int = 3,
    classes: int | None = None,
    split: str = "test",
    limit: int | None = None,
    resize: Resize = "lanczos",
    crop: Crop = "center",
    short_side: int | None = None,
    range: str | None = None,
    plane: int | None = None,
) -> Dataset:
    """Your pictures in a zip: column `label` of its labels.csv is the class, or else the folder inside it.

    resize, crop, short_side, range, plane: As of `image_folder`.
    """
    check_split("image-zip", split)
    check_positive("image-zip", size=size, classes=classes, limit=limit, short_side=short_side)
    check_channels("image-zip", channels)
    with open_files(Path(root)) as files:
        found = labels_of(files, label, split)
        names = _sort_classes(set(found.values()))[:classes]
        by_class = [[name for name, one in found.items() if one == each] for each in names]
        chosen = take(by_class, limit)
        words = _words(files)
        how = Reading(
            Fit(size=size, resize=resize, crop=crop, short_side=short_side),
            channels,
            parse_range(range, "image-zip"),
            plane,
        )
        images = stack_pictures([source(files, name) for name in chosen], how, f"{root}")
    mean, std = statistics(images)
    return Dataset(
        name=Path(root).stem,
        images=images,
        targets=one_hot(np.array([names.index(found[name]) for name in chosen]), len(names)),
        class_names=tuple(words.get(name, name) for name in names),
        mean=mean,
        std=std,
    )


def source(files: Files, name: str) -> Source:
    def read() -> BytesIO:
        return BytesIO(files.read(name))

    return Source(f"{files.where}: {name}", PurePosixPath(name).name, read)


def pictures_of(files: Files, beside: tuple[str, ...] = ()) -> list[str]:
    """Every name. A file of another kind is an error: left out in silence, it would be missing from the audit."""
    for name in files.names:
        if name not in beside and suffix_of(name) not in SUFFIXES:
            raise ConfigError(f"{files.where}: {name}: not one of {', '.join(SUFFIXES)}; convert or remove it")
    pictures = [name for name in files.names if name not in beside]
    if not pictures:
        raise ConfigError(f"{files.where}: no pictures in it, add some or give another root")
    return pictures


def labels_of(files: Files, label: str, split: str) -> dict[str, str]:
    """The class of each picture, by name."""
    pictures = pictures_of(files, beside=(LABELS, WORDS))
    if LABELS not in files.names:
        return _by_folder(files, pictures, split)
    table = {row["file"]: row[label] for row in _rows(files, LABELS, ("file", label))}
    for name in pictures:
        if name not in table:
            raise ConfigError(f"{files.where}: {name} has no line in {LABELS}, add one or remove the picture")
    for name in table:
        if name not in files.names:
            raise ConfigError(f"{files.where}: {LABELS} names {name[:200]!r}, which is not there; remove the line")
    return {name: table[name] for name in pictures}


def _by_folder(files: Files, pictures: list[str], split: str) -> dict[str, str]:
    """The innermost folder is the class; where the outermost are splits, only one of them is read."""
    outermost = {name.partition("/")[0] for name in pictures}
    if "train" in outermost and outermost & set(SPLITS["test"]):
        pictures = [name for name in pictures if name.partition("/")[0] in SPLITS[split]]
    for name in pictures:
        if "/" not in name:
            raise ConfigError(f"{files.where}: {name}: a picture without a class, put it into a folder or add {LABELS}")
    return {name: PurePosixPath(name).parent.name for name in pictures}


def _rows(files: Files, file: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The lines of a table that has these columns, each file once."""
    where = f"{files.where}: {file}"
    try:
        table = csv.DictReader(StringIO(files.read(file).decode(), newline=""), restval="", restkey="")
        rows, there = list(table), tuple(table.fieldnames or ())
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{where}: not a table of comma-separated values ({error}), save it again") from error
    for column in columns:
        if column not in there:
            raise ConfigError(f"{where}: no column {column!r} (found: {', '.join(there)[:300]}), name one of these")
    for row in rows:
        for column in columns:
            if not row[column].strip() or not row[column].isprintable():
                raise ConfigError(f"{where}: {column} is {row[column][:100]!r} in a line, mend it")
    if len({row[columns[0]] for row in rows}) < len(rows):
        raise ConfigError(f"{where}: a {columns[0]} is there twice, remove one of the lines")
    return rows


def _words(files: Files) -> dict[str, str]:
    """What the classes are called, where a table says it."""
    if WORDS not in files.names:
        return {}
    first, second = ("wnid", "words")
    return {row[first]: row[second] for row in _rows(files, WORDS, (first, second))}


def _sort_classes(classes: set[str]) -> list[str]:
    """Sorted; by size where all are numbers."""
    if len(classes) > MOST_CLASSES:
        raise ConfigError(f"image-zip: {len(classes):,} classes, the limit is {MOST_CLASSES:,}; take another column")
    numbers = all(one.isdecimal() and len(one) < 10 for one in classes)
    return sorted(classes, key=int) if numbers else sorted(classes)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what its models customarily use


def imagenet(
    *,
    root: str | Path,
    label: str = "name",
    size: int | None = None,
    classes: int | None = None,
    split: str = "test",
    limit: int | None = None,
    resize: Resize = "lanczos",
    crop: Crop = "center",
    short_side: int | None = None,
) -> Dataset:
    """ImageNet pictures in a zip or folder with labels.csv (columns file and name); `classes` takes the first ones."""
    fit: dict[str, Any] = {"size": size, "resize": resize, "crop": crop, "short_side": short_side}
    data = image_zip(root=root, label=label, classes=classes, split=split, limit=limit, **fit)
    return replace(data, name="imagenet", mean=MEAN, std=STD)
