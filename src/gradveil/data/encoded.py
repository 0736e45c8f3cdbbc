"""Pictures that were encoded offline: a folder with `encoded.npz`, which the loader `npz` reads, and a manifest.

While it is made, finished parts lie beside them. The archive is put together from these one by one, so that memory
does not grow with the number of pictures, and says of itself that it holds encodings: to encode them again is refused.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from gradveil.core.errors import ConfigError
from gradveil.core.files import SCRATCH
from gradveil.core.hashes import TELLING, differences
from gradveil.data.base import Dataset
from gradveil.data.npz import array_names

ARCHIVE, MANIFEST, SHEET, PARTS = "encoded.npz", "manifest.json", "before-after.png", "parts"
KIND = "gradveil encoded pictures"
JOURNAL = "journal.jsonl"
MARK = "encoded_by"  # an array of the archive, so that it is known under any name


def refuse_encoded(spec: str) -> None:
    """ConfigError if these pictures are encodings already."""
    path = Path(spec)
    archives = [path / ARCHIVE] if path.is_dir() else [path] if path.suffix == ".npz" else []
    encoded = path.is_dir() and is_ours(read_manifest(path))
    if encoded or any(archive.is_file() and MARK in array_names(archive) for archive in archives):
        raise ConfigError(f"{spec}: is encoded already, give the pictures that it was made from")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder says of itself; nothing if it says nothing."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_ours(manifest: Mapping[str, Any]) -> bool:
    return manifest.get("kind") == KIND


def found_in(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of the same protection, nothing in a new folder; anything else is refused."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder}: not a folder, choose another", key="folder")
    there = read_manifest(folder)
    if (
        not there
        and folder.is_dir()
        and {p.name for p in folder.iterdir()} - {JOURNAL, PARTS, SCRATCH, f"{MANIFEST}.part"}
    ):
        raise ConfigError(f"{folder}: exists and is no folder of encoded pictures, choose another", key="folder")
    if there:
        differing = differences({key: there.get(key) for key in asked}, asked)
        if differing or not is_ours(there):
            listed = "; ".join(differing[:TELLING]) or "another manifest"
            raise ConfigError(f"{folder}: holds other encodings ({listed}), choose another folder", key="folder")
    return there


def write_archive(path: Path, parts: Iterable[np.ndarray], dataset: Dataset, defense: str) -> None:
    """An .npz of `images`, float32 (N, C, H, W) in [0, 1], `labels` and `class_names`, written part by part."""
    labels, names = number_labels(dataset)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open(_member("images"), "w", force_zip64=True) as file:
            shape = (len(dataset), *dataset.shape)
            npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for part in parts:
                file.write(np.ascontiguousarray(part, "<f4").tobytes())
        for name, array in (("labels", labels), ("class_names", names), (MARK, np.array([defense]))):
            content = BytesIO()
            npy.write_array(content, array, allow_pickle=False)
            archive.writestr(_member(name), content.getvalue())


def _member(name: str) -> zipfile.ZipInfo:
    """Without the time: the same encodings are the same bytes."""
    return zipfile.ZipInfo(f"{name}.npy")


def number_labels(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Labels as `npz` reads them, and the names of as many classes as it will see."""
    targets, names = dataset.targets.numpy(), np.array(dataset.class_names)
    if not np.isin(targets, (0, 1)).all() or not dataset.has_classes:
        return targets, names
    if dataset.loss != "cross-entropy":
        return targets.astype(np.uint8), names
    labels = targets.argmax(1).astype(np.int64)
    return labels, names[: int(labels.max()) + 1]
