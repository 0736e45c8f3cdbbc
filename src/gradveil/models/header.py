"""The header of a safetensors file of unknown origin, checked by tensor, so that an error names the one that lies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from gradveil.core.errors import ConfigError

LARGEST = 10_000_000  # bytes; the format allows ten times as many, and no model needs a tenth of these
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
METADATA = "__metadata__"


class Stored(NamedTuple):
    """One tensor as the header describes it."""

    shape: tuple[int, ...]
    begin: int  # of its bytes, counted from `Header.start`
    end: int
    dtype: str


class Header(NamedTuple):
    """Everything that stands before the data."""

    tensors: dict[str, Stored]
    metadata: dict[str, str]
    start: int  # of the data in the file


def read_header(path: Path, where: Path | str) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor. Each lies inside the file, and all of them together are the file."""
    return {name: one.shape for name, one in read_whole_header(path, where).tensors.items()}


def read_whole_header(path: Path, where: Path | str) -> Header:
    """The same with types, places and metadata."""
    try:
        length, content = path.stat().st_size, _header_of(path, where)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read, {error.strerror or error}") from error
    entries = _entries(content, where)
    metadata = _metadata(entries.pop(METADATA, {}), where)
    tensors = {name: _parse_tensor(f"{where}: {name}", entry) for name, entry in entries.items()}
    place = 0
    for name, one in sorted(tensors.items(), key=lambda item: item[1][1:]):
        if one.begin != place:
            raise _broken_file(
                f"{where}: {name}: its data begins at byte {one.begin}, the tensor before it ends at {place}"
            )
        place = one.end
    size = length - 8 - len(content)
    if place != size:
        raise _broken_file(f"{where}: its tensors end at byte {place} of the data, the file holds {size}")
    return Header(tensors, metadata, 8 + len(content))


def _header_of(path: Path, where: Path | str) -> bytes:
    with path.open("rb") as file:
        claimed = int.from_bytes(file.read(8), "little")
        if claimed > LARGEST:
            raise _broken_file(f"{where}: its header claims {claimed:,} bytes, the limit is {LARGEST:,}")
        content = file.read(claimed)
    if not content or len(content) < claimed:
        raise _broken_file(f"{where}: its header claims {claimed:,} bytes, the file has {len(content):,} for it")
    return content


def _entries(content: bytes, where: Path | str) -> dict[str, Any]:
    try:
        found = json.loads(content, object_pairs_hook=without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _broken_file(f"{where}: its header is not JSON, {error}") from error
    if not isinstance(found, dict):
        raise _broken_file(f"{where}: its header is no table of tensors")
    return found


def _metadata(found: Any, where: Path | str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise _broken_file(f"{where}: {METADATA}: expected a table of texts")
    return found


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} is there twice")
        table[name] = value
    return table


def _parse_tensor(where: str, entry: Any) -> Stored:
    if not isinstance(entry, Mapping) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _broken_file(f"{where}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in WIDTHS:
        raise _broken_file(f"{where}: the type {str(dtype)[:20]!r} is not read (known: {', '.join(WIDTHS)})")
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _broken_file(f"{where}: shape and data_offsets must be lists of whole numbers")
    if prod(shape) * WIDTHS[dtype] != offsets[1] - offsets[0]:
        message = f"{dtype} of {str(tuple(shape))[:60]}"
        raise _broken_file(
            f"{where}: {message} does not take the {offsets[1] - offsets[0]:,} bytes that are claimed for it"
        )
    return Stored(tuple(shape), offsets[0], offsets[1], dtype)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _broken_file(message: str) -> ConfigError:
    return ConfigError(f"{message}; not a readable safetensors file, save it again")
