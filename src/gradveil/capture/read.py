"""Reading a capture from anybody: the header is believed by nobody, and nothing is allocated before it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.capture.document import parse_document
from gradveil.capture.format import (
    CAPTURE,
    DOCUMENT,
    HASH,
    KIND,
    LABELS,
    STATISTICS,
    UPDATES,
    WEIGHTS,
    Capture,
    digest,
    fingerprint,
)
from gradveil.capture.layout import LARGEST, MOST_TENSORS, Described, check_layout
from gradveil.core.errors import ConfigError
from gradveil.models.header import Header, Stored, read_whole_header

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What the beginning of a capture says: enough for a config, and no tensor is read for it."""

    document: Mapping[str, Any]  # the fields of `Capture` that are no tensors
    places: Mapping[str, Mapping[str, Mapping[str, Described]]]  # kind of tensor -> client -> name
    header: Header


def read_outline(path: str | Path) -> Outline:
    """The beginning of the file, checked, or a `ConfigError` that names the field."""
    path = Path(path)
    header = _checked_header(path)
    document = parse_document(header.metadata[DOCUMENT], f"{path}: {DOCUMENT}")
    described = {name: Described(one.dtype, one.shape) for name, one in header.tensors.items()}
    return Outline(document=document, places=check_layout(described, document, str(path)), header=header)


def load(path: str | Path) -> Capture:
    """The capture in the file, or a `ConfigError` that names the field."""
    path = Path(path)
    outline = read_outline(path)
    document, places, tensors = outline.document, outline.places, _read(path, outline.header)
    for client in places[LABELS]:
        _check_labels(tensors[f"{LABELS}/{client}"], document["classes"], f"{path}: {LABELS}/{client}")

    def of(kind: str, client: str) -> dict[str, Tensor]:
        return {name: tensors[f"{kind}/{client}/{name}"] for name in places[kind][client]}

    return Capture(
        weights={name: tensors[f"{WEIGHTS}/{name}"] for name in places[WEIGHTS][""]},
        updates={client: of(UPDATES, client) for client in document["examples"]},
        statistics={client: of(STATISTICS, client) for client in places[STATISTICS]},
        labels={client: tensors[f"{LABELS}/{client}"] for client in places[LABELS]},
        **document,
    )


def _checked_header(path: Path) -> Header:
    try:
        there = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there:
        raise ConfigError(f"{str(path)[:300]}: no such file, give the path of a capture")
    if (size := path.stat().st_size) > LARGEST:
        raise ConfigError(f"{path}: has {size:,} bytes, the limit is {LARGEST:,}, save fewer clients in one capture")
    header = read_whole_header(path, path)
    if header.metadata.get(KIND) != CAPTURE or DOCUMENT not in header.metadata:
        raise ConfigError(f"{path}: {DOCUMENT}: is not in its metadata, write it with gradveil.capture.save")
    if len(header.tensors) > MOST_TENSORS:
        raise ConfigError(f"{path}: has {len(header.tensors):,} tensors, the limit is {MOST_TENSORS:,}, split it")
    return header


def _read(path: Path, header: Header) -> dict[str, Tensor]:
    """Every tensor, finite, and all of them what the hash was made of."""
    found: dict[str, Tensor] = {}
    lines: dict[str, str] = {}
    with path.open("rb") as file:
        for name, one in sorted(header.tensors.items(), key=lambda item: item[1].begin):
            content = bytearray(one.end - one.begin)
            file.seek(header.start + one.begin)
            if file.readinto(content) != len(content):
                raise ConfigError(f"{path}: {name}: the file ends before it, copy it again")
            lines[name] = digest(one.dtype, one.shape, content)
            found[name] = _finite(_tensor(content, one), f"{path}: {name}")
    _check_hash(path, header.metadata, lines)
    return found


def _tensor(content: bytearray, one: Stored) -> Tensor:
    if not content:
        return torch.empty(one.shape, dtype=TYPES[one.dtype])
    return torch.frombuffer(content, dtype=TYPES[one.dtype]).reshape(one.shape)


def _finite(tensor: Tensor, where: str) -> Tensor:
    if tensor.is_floating_point() and not tensor.isfinite().all():
        bad = int((~tensor.isfinite()).sum())
        mend = "save the model as sent" if f": {WEIGHTS}/" in where else "leave this client out"
        raise ConfigError(f"{where}: {bad:,} of {tensor.numel():,} numbers are not finite, {mend}")
    return tensor


def _check_labels(labels: Tensor, classes: int, where: str) -> None:
    """Class numbers are of the capture's classes."""
    if not labels.is_floating_point() and labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        strange = next(one for one in labels.flatten().tolist() if not 0 <= one < classes)
        raise ConfigError(f"{where}: {strange} is no class, number them from 0 to {classes - 1}")


def _check_hash(path: Path, metadata: Mapping[str, Any], lines: Mapping[str, str]) -> None:
    """Of a capture that carries one: whoever writes the format by hand may leave it out."""
    stated = metadata.get(HASH)
    if stated is not None and stated != fingerprint(metadata[DOCUMENT], lines):
        raise ConfigError(f"{path}: {HASH}: the content was changed after it was written, get the file again")
