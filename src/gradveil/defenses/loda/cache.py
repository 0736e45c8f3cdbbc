"""Encodings on disk, by hash: a picture is encoded once for one extractor and one set of options, within a run.

A file is a checksum and the pixels as float32. One that is torn or damaged counts as not there. What was encoded leaves
an empty file under the hash of the encoding in the user's cache: an encoding that comes back to be encoded again is
then known.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from gradveil.core.files import cache_folder, picture_cache, private_files
from gradveil.defenses.loda.starts import hash_of


@dataclass(frozen=True)
class Cache:
    """Encodings under one key below `root`, in a run its own folder; None: none are kept. `marks` has the hashes."""

    key: str
    root: Path | None
    marks: Path

    @classmethod
    def of(cls, key: str) -> Cache:
        place = picture_cache()
        return cls(key, None if place is None else place / "encoded", cache_folder() / "encoded" / "made")

    def path(self, hashed: str) -> Path | None:
        return None if self.root is None else self.root / self.key / hashed[:2] / hashed

    def marker_of(self, hashed: str) -> Path:
        return self.marks / hashed[:2] / hashed

    def read(self, hashed: str, like: Tensor) -> Tensor | None:
        """The encoding of a picture of this shape; None if it is not there whole."""
        path = self.path(hashed)
        try:
            content = path.read_bytes() if path else b""
        except OSError:
            return None
        check, pixels = content[:4], content[4:]
        if len(pixels) != 4 * like.numel() or int.from_bytes(check, "little") != crc32(pixels):
            return None
        return torch.from_numpy(np.frombuffer(pixels, np.float32).copy()).view(like.shape)

    def keep(self, hashed: str, encoding: Tensor) -> None:
        """A cache that cannot be written costs time and nothing else."""
        pixels = encoding.detach().float().cpu().contiguous().numpy().tobytes()
        with suppress(OSError), private_files():
            if path := self.path(hashed):
                _write(path, crc32(pixels).to_bytes(4, "little") + pixels)
            _write(self.marker_of(hash_of(encoding)), b"")

    def is_encoding(self, hashed: str) -> bool:
        return self.marker_of(hashed).exists()


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, but not synced: what a power cut tears is seen by its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    part.write_bytes(content)
    os.replace(part, path)
