"""A capture as a file. It may come from anybody: no header is believed, nothing is allocated before it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from gradveil.capture.document import format_document, parse_document
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
from gradveil.core.files import write_whole
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
    header = _read_checked_header(path)
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


def _read_checked_header(path: Path) -> Header:
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


CODES = {dtype: code for code, dtype in TYPES.items()}


def save(path: str | Path, capture: Capture) -> Path:
    """The capture as a safetensors file, 0600, whole or not at all."""
    path = Path(path)
    tensors = {name: _plain(tensor, f"{path}: {name}") for name, tensor in capture.tensors().items()}
    document = format_document(replace(capture, shape=tuple(capture.shape)))
    described = {name: Described(CODES[one.dtype], tuple(one.shape)) for name, one in tensors.items()}
    check_layout(described, parse_document(document, f"{path}: {DOCUMENT}"), str(path))
    if sum(tensor.nbytes for tensor in tensors.values()) > LARGEST - 2**24:
        raise ConfigError(f"{path}: more than {LARGEST:,} bytes, save fewer clients in one capture")
    metadata = {KIND: CAPTURE, DOCUMENT: document, HASH: hash_of(document, tensors)}
    write_whole(path, to_bytes(tensors, metadata=metadata))
    return path


def content_hash(capture: Capture) -> str:
    """The SHA-256 that `save` would write into the file. One tensor after another: many clients are much memory."""
    return fingerprint(
        format_document(capture), {name: _digest(_plain(t, name)) for name, t in capture.tensors().items()}
    )


def hash_of(document: str, tensors: dict[str, Tensor]) -> str:
    return fingerprint(document, {name: _digest(tensor) for name, tensor in tensors.items()})


def _digest(tensor: Tensor) -> str:
    content = tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b""
    return digest(CODES[tensor.dtype], tuple(tensor.shape), content)


def _plain(tensor: Tensor, where: str) -> Tensor:
    """A copy of its own: tied weights share memory, which the format cannot say."""
    tensor = tensor.detach().cpu().contiguous().clone()
    if tensor.dtype not in CODES:
        raise ConfigError(f"{where}: is of type {tensor.dtype}, convert it to float32")
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ConfigError(f"{where}: has numbers that are not finite, leave this client out")
    return tensor
