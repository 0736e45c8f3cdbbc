"""A run is a folder: config.toml, provenance.json, journal.jsonl, images/. Only its owner can read it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from gradveil.errors import ConfigError
from gradveil.provenance import HASHES, now

CONFIG, PROVENANCE, JOURNAL, IMAGES = "config.toml", "provenance.json", "journal.jsonl", "images"
DERIVED = ("report.html", "verdict.json")
TELLING = 3  # differences named in one line


@contextmanager
def private_files() -> Iterator[None]:
    """Files made inside are 0600, folders 0700."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def write_whole(path: Path, content: bytes) -> None:
    """All of the file or none of it, whenever the power goes."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every key whose value is not the same, with both values."""
    found: list[str] = []
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {_said(old)} there, {_said(new)} here")
    return found


def _said(value: Any) -> str:
    return "absent" if value is None else repr(value)


class RunFolder:
    """The folder of one run. `check` touches nothing, `prepare` writes what is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def check(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Refuse a folder that is not ours, or that holds another run."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise ConfigError(f"{self.path}: not a folder, choose another --out")
        if not self.path.exists():
            return
        self._check_contents()
        if (self.path / CONFIG).exists():
            there = tomllib.loads((self.path / CONFIG).read_text())
            self._refuse(differences(there, tomllib.loads(config)))
        if stored := self._stored():
            self._refuse([f"{name} is not the same" for name in HASHES if stored.get(name) != provenance[name]])

    def _check_contents(self) -> None:
        ours = {CONFIG, PROVENANCE, JOURNAL, IMAGES, *DERIVED}
        names = {p.name.removesuffix(".part") for p in self.path.iterdir() if not p.name.startswith(".")}
        strange = names - ours
        headless = not (self.path / CONFIG).exists() and self.journal.exists() and self.journal.stat().st_size
        if strange or headless:
            raise ConfigError(f"{self.path}: exists and is not the folder of a run, choose another --out")

    def _refuse(self, differing: list[str]) -> None:
        if differing:
            more = f" and {len(differing) - TELLING} more" if len(differing) > TELLING else ""
            told = "; ".join(differing[:TELLING]) + more
            raise ConfigError(f"{self.path}: holds another run ({told}), choose another --out")

    def _stored(self) -> dict[str, Any]:
        path = self.path / PROVENANCE
        return json.loads(path.read_bytes()) if path.exists() else {}

    def create(self) -> None:
        try:
            (self.path / IMAGES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be made, {error.strerror}, choose another --out") from error

    def prepare(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Write config and provenance; a run that goes on keeps its first provenance and notes the return."""
        if not (self.path / CONFIG).exists():
            write_whole(self.path / CONFIG, config.encode())
        stored = self._stored()
        if stored:
            again = {key: provenance[key] for key in ("command", "device", "precision", "gradveil", "torch", "started")}
            provenance = {**stored, "finished": None, "resumed": [*stored.get("resumed", []), again]}
        self._write_provenance(provenance)

    def finish(self) -> None:
        self._write_provenance({**self._stored(), "finished": now()})

    def _write_provenance(self, provenance: Mapping[str, Any]) -> None:
        write_whole(self.path / PROVENANCE, (json.dumps(provenance, indent=2) + "\n").encode())

    def save_pictures(self, name: str, pictures: Mapping[str, Tensor]) -> None:
        """`original`, `fed` and `reconstructed` of one client, float32 in [0, 1]."""
        plain = {key: value.detach().float().cpu().contiguous() for key, value in pictures.items()}
        write_whole(self.path / IMAGES / name, save(plain))
