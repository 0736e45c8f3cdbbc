"""Pictures of the user's own as NumPy arrays, and what is checked before one is read."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.base import (
    MAX_VALUES,
    Dataset,
    check_amount,
    check_positive,
    check_split,
    from_bytes,
    statistics,
)
from gradveil.data.targets import targets_from, usual_loss

MOST_MEMBERS = 1000
WIDEST = 8  # bytes per number: with MAX_VALUES, what one array may take
EXPANDS_FREELY, EXPANSION = 2**26, 100  # bytes; beyond them, how many times its stored size an array may have


def read_arrays(path: Path, wanted: Iterable[str], optional: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file. Every member of it must be sound, wanted or not."""
    with _refuse_damage(path), zipfile.ZipFile(path) as archive:
        members = _members(path, archive)
        for name in wanted:
            if name not in members:
                found = ", ".join(members) or "none"
                raise ConfigError(f"{path}: no array {name!r} in it (found: {found}), save it so")
        names = [name for name in (*wanted, *optional) if name in members]
        return {name: _read(archive, members[name]) for name in names}


def array_names(path: Path) -> list[str]:
    """What is in the file; nothing but the headers is read."""
    with _refuse_damage(path), zipfile.ZipFile(path) as archive:
        return list(_members(path, archive))


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """By array name. Sizes first: even a header can be made to expand."""
    entries = archive.infolist()
    if len(entries) > MOST_MEMBERS:
        raise ConfigError(f"{path}: {len(entries):,} arrays, the limit is {MOST_MEMBERS:,}, save fewer")
    if sum(entry.compress_size for entry in entries) > path.stat().st_size:
        raise ConfigError(f"{path}: its members claim more bytes than the file has, save it again with np.savez")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.removesuffix(".npy")
        if name in members:
            raise ConfigError(f"{path}: {name} is there twice, save it again with np.savez")
        _check_size(f"{path}: {entry.filename}", entry)
        _check_header(f"{path}: {entry.filename}", archive, entry)
        members[name] = entry
    return members


def _check_size(where: str, entry: zipfile.ZipInfo) -> None:
    if entry.file_size > EXPANDS_FREELY and entry.file_size > EXPANSION * entry.compress_size:
        raise ConfigError(
            f"{where} would grow from {entry.compress_size:,} to {entry.file_size:,} bytes, more than {EXPANSION} "
            "times; save it with np.savez if it is really so"
        )


def _check_header(where: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    with archive.open(entry) as file:
        read = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        start = file.tell()
    if dtype.hasobject:
        raise ConfigError(f"{where} holds Python objects, save plain numbers instead")
    if any(side < 0 for side in shape):
        raise ConfigError(f"{where} has the shape {shape}, save it again")
    check_amount(where, shape)
    if prod(shape) * dtype.itemsize > WIDEST * MAX_VALUES:
        raise ConfigError(f"{where} has entries of {dtype.itemsize:,} bytes, save plain numbers instead")
    if start + prod(shape) * dtype.itemsize != entry.file_size:
        raise ConfigError(f"{where} is not as long as its header says, save it again")


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as file:
        return np.asarray(npy.read_array(file, allow_pickle=False))


@contextmanager
def _refuse_damage(path: Path) -> Iterator[None]:
    try:
        if not path.is_file():
            raise ConfigError(f"{path}: no such file, give the path of an .npz file")
        yield
    except ConfigError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise nearly anything on bytes made to confuse them
        message = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: damaged or not an .npz file ({message}), save it again with np.savez") from error


SHAPES = "uint8 (N, H, W, C) or (N, H, W), or float (N, C, H, W) in [0, 1]"


def npz(*, path: str | Path, split: str = "test", limit: int | None = None) -> Dataset:
    """Your pictures in one .npz: `images`, `labels` and, if you like, `class_names`; or `test_images` and so on.

    Labels may be class numbers, tables (soft, several at once, or numbers to be met), or masks: see docs/data.md.
    """
    path = Path(path)
    check_split("npz", split)
    check_positive("npz", limit=limit)
    arrays = _arrays(path, split)
    images = _images(path, arrays["images"], limit)
    targets = targets_from(path, arrays["labels"], len(arrays["images"]), tuple(images.shape[2:]))
    names = _class_names(path, arrays.get("class_names"), targets.shape[1])
    mean, std = statistics(images)
    return Dataset(
        name=path.stem,
        images=images,
        targets=targets[:limit],
        class_names=names,
        mean=mean,
        std=std,
        loss=usual_loss(targets),
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


def _class_names(path: Path, names: np.ndarray | None, classes: int) -> tuple[str, ...]:
    if names is None:
        return tuple(map(str, range(classes)))
    if names.shape != (classes,) or names.dtype.kind not in "Uiu":
        raise ConfigError(f"{path}: class_names is {names.dtype} {names.shape}, the labels need ({classes},) texts")
    if not all(str(name).isprintable() for name in names):
        raise ConfigError(f"{path}: class_names has a name with a line break or control letter, rename that class")
    return tuple(map(str, names))
