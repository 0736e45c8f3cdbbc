"""Pictures of the user's own as NumPy arrays. Nothing is unpickled, and headers are read before the arrays are."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from gradveil.data.base import Dataset, check_amount, check_positive, check_split, from_bytes, one_hot, statistics
from gradveil.errors import ConfigError

SHAPES = "uint8 (N, H, W, C) or (N, H, W), or float (N, C, H, W) in [0, 1]"


class Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


def npz(*, path: str | Path, split: str = "test", limit: int | None = None) -> Dataset:
    """Your pictures in one .npz: `images`, `labels` and, if you like, `class_names`; or `test_images` and so on."""
    path = Path(path)
    check_split("npz", split)
    check_positive("npz", limit=limit)
    arrays = _arrays(path, split)
    images = _images(path, arrays["images"][:limit])
    targets = _targets(path, arrays["labels"], len(arrays["images"]))
    names = arrays.get("class_names", np.arange(targets.shape[1]))
    if names.shape != (targets.shape[1],):
        raise ConfigError(f"{path}: class_names has shape {names.shape}, the labels need ({targets.shape[1]},)")
    mean, std = statistics(images)
    class_names = tuple(map(str, names))
    return Dataset(name=path.stem, images=images, targets=targets[:limit], class_names=class_names, mean=mean, std=std)


def _arrays(path: Path, split: str) -> dict[str, np.ndarray]:
    """The arrays of this split by plain name."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the path of an .npz file")
    with _told(path):
        headers = _headers(path)
        prefix = f"{split}_" if f"{split}_images" in headers else ""
        keys = {name: name if name == "class_names" else prefix + name for name in ("images", "labels", "class_names")}
        for key in (keys["images"], keys["labels"]):
            if key not in headers:
                raise ConfigError(f"{path}: no array {key!r} in it (found: {', '.join(headers) or 'none'}), save it so")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[key] for name, key in keys.items() if key in headers}


def _headers(path: Path) -> dict[str, Header]:
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            header, start = _header(archive, member)
            if header.dtype.hasobject:
                raise ConfigError(f"{path}: {member.filename} holds Python objects, save plain numbers instead")
            check_amount(f"{path}: {member.filename}", header.shape)
            if start + prod(header.shape) * header.dtype.itemsize != member.file_size:
                raise ConfigError(f"{path}: {member.filename} is not as long as its header says, save it again")
            headers[member.filename.removesuffix(".npy")] = header
    return headers


def _header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Header, int]:
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        return Header(shape, dtype), file.tell()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise nearly anything on bytes made to confuse them
        message = " ".join(str(error).split())
        raise ConfigError(f"{path}: damaged or not an .npz file ({message}), save it again with np.savez") from error


def _images(path: Path, images: np.ndarray) -> Tensor:
    if images.dtype == np.uint8 and images.ndim in (3, 4):
        images = images[..., None] if images.ndim == 3 else images
        _check_shape(path, images.shape, channels=images.shape[-1])
        return from_bytes(images.transpose(0, 3, 1, 2))
    if images.dtype.kind == "f" and images.ndim == 4:
        _check_shape(path, images.shape, channels=images.shape[1])
        _check_range(path, images)
        return torch.from_numpy(images.astype(np.float32))
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
    if labels.shape[:1] != (count,) or labels.ndim > 2:
        raise ConfigError(f"{path}: labels have shape {labels.shape} for {count} images, expected one row per image")
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise ConfigError(f"{path}: labels are a table, so every entry must be 0 or 1; save class numbers or 0/1")
        return torch.from_numpy(labels.astype(np.float32))
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= 100_000:
        raise ConfigError(f"{path}: labels are {labels.dtype}, expected whole numbers from 0 (class numbers)")
    return one_hot(labels, int(labels.max()) + 1)
