"""Files that claim what they do not hold. They are made here, so that the repository holds none."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def npy(shape: Any, descr: Any = "|u1", content: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An array file with any header and any content."""
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + length + header + content


def whole(array: Any, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def npz(path: Path, members: Mapping[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> None:
    entries = list(members.items()) if isinstance(members, Mapping) else members
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)


def safetensors(header: Any, content: bytes = b"", claimed: int | None = None) -> bytes:
    """A weights file with any header, whose length may be claimed to be another."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text + content


def png(width: int, height: int, content: bytes, depth: int = 8, color: int = 2, **more: bytes) -> bytes:
    """A PNG with any header; `content` is what is compressed, and `more` are chunks by name before it."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = [(b"IHDR", header), *((name.encode(), body) for name, body in more.items())]
    chunks += [(b"IDAT", zlib.compress(content)), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def megapixels(side: int) -> bytes:
    """A whole and valid PNG of side x side black pixels, row by row: a hundred kilobytes for 900 megapixels."""
    packer, row = zlib.compressobj(9), bytes(1 + (side + 7) // 8)
    content = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", content), (b"IEND", b""))
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff_of_frames(count: int) -> bytes:
    """A TIFF of so many single pixels, each in a frame of its own."""
    tags = ((256, 3, 1), (257, 3, 1), (258, 3, 8), (259, 3, 1), (262, 3, 1))
    tags += ((273, 4, 0), (277, 3, 1), (278, 3, 1), (279, 4, 1))
    size = 2 + 12 * len(tags) + 4
    frame = struct.pack("<H", len(tags)) + b"".join(
        struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags
    )
    places = (8 + size * (k + 1) if k < count - 1 else 0 for k in range(count))
    return b"II*\0" + struct.pack("<I", 8) + b"".join(frame + struct.pack("<I", place) for place in places)


def picture(kind: str = "PNG", mode: str = "RGB", side: int = 32, **options: Any) -> bytes:
    """A sound picture of noise."""
    pixels = np.random.default_rng(0).integers(1, 255, (side, side, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


def idx(shape: tuple[int, ...], content: bytes, magic: int | None = None) -> bytes:
    first = 0x0800 + len(shape) if magic is None else magic
    return struct.pack(f">{1 + len(shape)}I", first, *shape) + content


def zipped(content: bytes) -> bytes:
    return gzip.compress(content)


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below: mode, size and time of the last change."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found
