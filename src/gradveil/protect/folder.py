"""The folder of a protection: manifest, archive and sheet; while it is made, a journal and finished parts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.files import sync_folder, write_whole
from gradveil.core.hashes import sha256
from gradveil.data.base import Dataset
from gradveil.data.encoded import ARCHIVE, KIND, MANIFEST, PARTS, SHEET, found_in, read_manifest, write_archive
from gradveil.experiment.folder import JOURNAL, RunFolder
from gradveil.experiment.provenance import now
from gradveil.experiment.record import Record


class ProtectionFolder(RunFolder):
    """A manifest in the place of config and provenance; of a finished protection the archive alone is kept."""

    files = (MANIFEST, ARCHIVE, SHEET, JOURNAL)
    folders = (PARTS,)
    kind = "protection"
    results = "parts"

    def dump(self, tables: Mapping[str, Any]) -> str:
        return json.dumps(tables)

    def check(self, config: str, provenance: Mapping[str, Any]) -> None:
        found_in(self.path, json.loads(config))

    def read_provenance(self) -> dict[str, Any]:
        return read_manifest(self.path)

    def prepare(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Write the manifest; a protection that goes on keeps its first one."""
        new = {"kind": KIND, "schema": 1, **json.loads(config), **provenance}
        self._write_provenance(self.read_provenance() or new)

    def finish(self, closing: Mapping[str, Any] = {}) -> None:
        """The manifest says last that the archive is there; the parts are then no longer needed."""
        archive = self.path / ARCHIVE
        about = {**closing, "finished": now(), "bytes": archive.stat().st_size, "archive_sha256": hash_file(archive)}
        self._write_provenance(self.read_provenance() | about)
        self.clear()

    def _write_provenance(self, provenance: Mapping[str, Any]) -> None:
        write_whole(self.path / MANIFEST, (json.dumps(provenance, indent=2) + "\n").encode())

    def check_archive(self) -> None:
        """Refuse an archive that is not the one of the manifest."""
        archive = self.path / ARCHIVE
        if not archive.is_file() or archive.stat().st_size != self.read_provenance()["bytes"]:
            raise ConfigError(
                f"{archive}: has another size than the manifest says, restore it or choose another `folder`"
            )

    def clear(self) -> None:
        shutil.rmtree(self.path / PARTS, ignore_errors=True)
        self.journal.unlink(missing_ok=True)

    def has_part(self, record: Record) -> bool:
        """On disk, byte for byte."""
        path = self.path / PARTS / record.images
        return path.is_file() and sha256(path.read_bytes()) == record.notes[0]

    def save_part(self, name: str, content: bytes) -> None:
        write_whole(self.path / PARTS / name, content)

    def load_part(self, first: int) -> Tensor:
        return load((self.path / PARTS / name_of(first)).read_bytes())["images"]

    def write_archive(self, dataset: Dataset, size: int, defense: str) -> None:
        """All parts, one by one, so that memory does not grow with their number."""
        archive = self.path / ARCHIVE
        part = archive.with_name(f"{ARCHIVE}.part")
        write_archive(part, self._arrays(len(dataset), size), dataset, defense)
        os.replace(part, archive)
        sync_folder(self.path)

    def _arrays(self, count: int, size: int) -> Iterator[np.ndarray]:
        for first in range(0, count, size):
            yield self.load_part(first).numpy()


def name_of(first: int) -> str:
    return f"{first:09d}.safetensors"


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
