"""NVFlare's files (FOBS) as plain values, without NVFlare: a file may come from anybody, and theirs loads classes.

A file is sections, each with a head of ten bytes: a mark, a kind and a length. The first (mark 100) is msgpack. Objects
in it are tables of `__fobs_type__`, `__fobs_data__` and `__fobs_dc__`; what is large stands in a later section (102),
named by the 16 bytes of its id. Written by NVFlare 2.9: `DXO.to_file`, `fobs.dumpf`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from gradveil.core.errors import ConfigError

HEAD = struct.Struct(">BBQ")
MAIN, BLOB, ID = 100, 102, 16
LARGEST = 2**31  # bytes of a file
DEEPEST = 50
TYPE, DATA = "__fobs_type__", "__fobs_data__"
REFERENCE = "nvflare.fuel.utils.fobs.datum.DatumRef"


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """A data exchange object: `kind` is WEIGHTS, WEIGHT_DIFF or another of NVFlare's words."""

    kind: str
    data: Mapping[str, Any]
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Foreign:
    """An object of a type that is not read."""

    name: str


def read_exchanged(path: str | Path) -> Exchanged:
    """The DXO in the file, as itself or in a shareable; ConfigError if there is none, or it is damaged."""
    path = Path(path)
    try:
        size = path.stat().st_size
        content = path.read_bytes() if path.is_file() and size <= LARGEST else b""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(path)[:300]}: cannot be read, give the path of a file that NVFlare wrote") from error
    if not content:
        raise ConfigError(f"{path}: has {size:,} bytes, expected 1 to {LARGEST:,}, give a file that NVFlare wrote")
    try:
        return _exchanged(parse(content, str(path)), path)
    except ConfigError:
        raise
    except Exception as error:  # whatever a reader raises on bytes made to confuse it
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{path}: damaged or not a file of NVFlare ({type(error).__name__}: {reason})") from error


def _exchanged(found: Any, path: Path) -> Exchanged:
    if isinstance(found, Mapping) and isinstance(found.get("DXO"), Mapping):  # a shareable
        inner = found["DXO"]
        found = (inner.get("kind"), inner.get("meta"), inner.get("data"))
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], str)):
        raise ConfigError(f"{path}: holds no DXO, write it with DXO.to_file")
    kind, meta, data = found
    if not isinstance(data, Mapping) or not isinstance(meta, Mapping):
        raise ConfigError(f"{path}: its DXO has no table of data, write it with DXO.to_file")
    return Exchanged(kind=kind, data=data, meta=meta)


def parse(content: bytes, where: str) -> Any:
    """The object, of plain values, arrays as tensors, and `Foreign` for all else."""
    main, blobs = _sections(content, where)
    return Resolver(blobs, where).resolve(_unpack(main, where))


def _sections(content: bytes, where: str) -> tuple[bytes, dict[str, bytes]]:
    main, blobs, place = None, {}, 0
    while place < len(content):
        if place + HEAD.size > len(content):
            raise ConfigError(f"{where}: ends inside a section, copy it again")
        mark, _, length = HEAD.unpack_from(content, place)
        body = content[place + HEAD.size : place + HEAD.size + length]
        if len(body) != length:
            raise ConfigError(f"{where}: claims a section of {length:,} bytes and holds {len(body):,}, copy it again")
        place += HEAD.size + length
        if mark == MAIN and main is None:
            main = body
        elif mark == BLOB and length >= ID:
            blobs[str(UUID(bytes=body[:ID]))] = body[ID:]
        else:
            raise ConfigError(f"{where}: has a section of kind {mark}, write it with DXO.to_file")
    if main is None:
        raise ConfigError(f"{where}: is no file of NVFlare, write it with DXO.to_file")
    return main, blobs


def _unpack(main: bytes, where: str) -> Any:
    try:
        import msgpack
    except ModuleNotFoundError as error:
        raise ConfigError(f"{where}: needs msgpack, install it: pip install 'gradveil[nvflare]'") from error

    def refuse(code: int, data: bytes) -> None:
        raise ConfigError(f"{where}: has an extension of kind {code}, write it with DXO.to_file")

    return msgpack.unpackb(main, ext_hook=refuse, strict_map_key=True)


class Resolver:
    """From tables of types to values."""

    def __init__(self, blobs: Mapping[str, bytes], where: str) -> None:
        self.blobs, self.where = blobs, where
        self.readers: dict[str, Callable[[Any], Any]] = {
            "tuple": tuple,
            "collections.OrderedDict": lambda pairs: dict(pairs),
            "nvflare.apis.dxo.DXO": lambda inner: inner,
            "nvflare.apis.dxo.DataKind": str,
            "nvflare.apis.shareable.Shareable": lambda inner: inner,
            "numpy.ndarray": self._array,
            "torch.Tensor": self._torch,
            **{f"numpy.{name}": lambda number: number for name in ("float32", "float64", "int32", "int64")},
            REFERENCE: self._blob,
        }

    def resolve(self, value: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise ConfigError(f"{self.where}: is nested more than {DEEPEST} deep, write it with DXO.to_file")
        if isinstance(value, list):
            return [self.resolve(one, depth + 1) for one in value]
        if not isinstance(value, dict):
            return value
        if TYPE not in value:
            return {name: self.resolve(one, depth + 1) for name, one in value.items()}
        reader = self.readers.get(str(value[TYPE]))
        return Foreign(str(value[TYPE])[:200]) if reader is None else reader(self.resolve(value.get(DATA), depth + 1))

    def _blob(self, reference: Any) -> bytes:
        name = str(reference["data"]["datum_id"])
        if name not in self.blobs:
            raise ConfigError(f"{self.where}: a section is missing, copy it again")
        return self.blobs[name]

    def _array(self, stored: Any) -> Tensor:
        content = _native(stored, self.where)
        stream = BytesIO(content)
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.kind not in "fiub" or prod(shape) * dtype.itemsize != len(content) - stream.tell():
            raise ConfigError(f"{self.where}: an array claims {dtype} of {shape} and holds something else")
        values = np.frombuffer(content, dtype, prod(shape), stream.tell())
        array = values.reshape(shape, order="F" if fortran else "C")
        return torch.from_numpy(np.ascontiguousarray(array.astype(dtype.newbyteorder("="))).reshape(shape))

    def _torch(self, stored: Any) -> Tensor:
        try:
            return load_tensors(_native(stored, self.where))["t"]
        except (SafetensorError, KeyError) as error:
            raise ConfigError(f"{self.where}: a tensor is damaged, copy the file again") from error


def _native(stored: Any, where: str) -> bytes:
    content = stored.get("data") if isinstance(stored, Mapping) and stored.get("type") == "native" else None
    if not isinstance(content, bytes):
        raise ConfigError(f"{where}: an array is only referred to, write the DXO with its arrays")
    return content
