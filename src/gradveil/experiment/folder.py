"""A run is a folder: config.toml, provenance.json, journal.jsonl, images/. Only its owner can read it."""

from __future__ import annotations

import errno
import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from gradveil.core import toml
from gradveil.core.errors import ConfigError, DiskError, Interrupted
from gradveil.core.files import write_whole
from gradveil.core.hashes import TELLING, differences, own_version, sha256
from gradveil.experiment import journal
from gradveil.experiment.provenance import HASHES, now, several_versions
from gradveil.experiment.reseal import SEALED_AGAIN, announce_seal, find_broken_seal, withdraw_seal
from gradveil.experiment.seal import SEAL, SIGNATURE

CONFIG, PROVENANCE, JOURNAL, IMAGES = "config.toml", "provenance.json", "journal.jsonl", "images"
VERDICT, REPORT = "verdict.json", "report.html"
AGAIN = ("command", "device", "precision", "gradveil", "torch", "started", "seconds")  # of each return to a run
ADDED = ("piece",)  # what a return may decide that the run had left open
DERIVED = (VERDICT, REPORT, SEAL, SIGNATURE)
FULL, BROKEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (errno.EIO, errno.EROFS)


def _with_checksum(provenance: Mapping[str, Any]) -> bytes:
    """As JSON, with a checksum of all that comes before it."""
    check = sha256(json.dumps(provenance, sort_keys=True).encode())
    return (json.dumps({**provenance, "check": check}, indent=2) + "\n").encode()


class RunFolder:
    """The folder of one run. `check` touches nothing, `prepare` writes what is missing.

    A subclass says which `files` and `folders` a run of its kind has, and what its `results` are called in messages.
    """

    files: tuple[str, ...] = (CONFIG, PROVENANCE, JOURNAL, *DERIVED)
    folders: tuple[str, ...] = (IMAGES,)
    derived: tuple[str, ...] = DERIVED  # what can be made again from the rest
    kind = "run"
    results = "trials"

    def __init__(self, path: Path) -> None:
        self.path = path

    def count_results(self) -> int:
        """How many results an interruption leaves: the same call does not compute them again."""
        return len(journal.read(self.journal))

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    def dump(self, tables: Mapping[str, Any]) -> str:
        """The settings as the text that `check` compares and `prepare` writes."""
        return toml.dump(tables)

    def check(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Refuse a folder that is not ours, or that holds another run."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise ConfigError(f"{self.path}: not a folder, choose another `folder`")
        if not self.path.exists():
            return
        self._check_contents()
        if (self.path / CONFIG).exists():
            self._check_config(config)
        if stored := self.read_provenance():
            same = (*HASHES, "precision")  # the last is no part of the config and yet moves numbers
            self._refuse([f"{name} is not the same" for name in same if stored.get(name) != provenance.get(name)])

    def _check_config(self, config: str) -> None:
        path = self.path / CONFIG
        content = path.read_bytes()
        try:
            stored = tomllib.loads(content.decode())
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: cannot be read, {error}, restore the file") from error
        self._refuse(differences(stored, tomllib.loads(config)))
        if content != config.encode():
            raise ConfigError(f"{path}: changed since it was written, restore the file")

    def _check_contents(self) -> None:
        names = {p.name.removesuffix(".part") for p in self.path.iterdir() if not p.name.startswith(".")}
        strange = names - {*self.files, *self.folders}
        begun = self.journal.exists() and self.journal.stat().st_size
        if strange or (begun and not (self.path / CONFIG).exists()):
            raise ConfigError(f"{self.path}: exists and is not the folder of a {self.kind}, choose another `folder`")
        if begun and not (self.path / PROVENANCE).exists():
            raise ConfigError(f"{self.path / PROVENANCE}: is missing, restore the file")

    def _refuse(self, differing: list[str]) -> None:
        if differing:
            more = f" and {len(differing) - TELLING} more" if len(differing) > TELLING else ""
            named = "; ".join(differing[:TELLING]) + more
            raise ConfigError(f"{self.path}: holds another run ({named}), choose another `folder`")

    def read_provenance(self) -> dict[str, Any]:
        """The provenance that is on disk, byte for byte as it was written; {} if there is none."""
        path = self.path / PROVENANCE
        if not path.is_file():
            return {}
        content = path.read_bytes()
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: cannot be read, {error}, restore the file") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: expected a table of keys, restore the file")
        older = not {"check", "shard"} & found.keys()  # a version that wrote neither
        found.pop("check", None)
        if not older and content != _with_checksum(found):
            raise ConfigError(f"{path}: changed since it was written, restore the file")
        return found

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C and a disk that is full or broken cost nothing that is finished: the error says so.

        Raises Interrupted (a KeyboardInterrupt) or DiskError, each with the number of results that are kept.
        """
        try:
            yield
        except KeyboardInterrupt as error:
            kept = f"{self.count_results()} {self.results} are kept"
            raise Interrupted(f"{kept}, go on with `folder = {self.user_path}`") from error
        except OSError as error:
            if error.errno not in FULL + BROKEN:
                raise
            kept = f"{self.count_results()} {self.results} are kept"
            remedy = "make room" if error.errno in FULL else "repair the disk"
            raise DiskError(
                f"{self.user_path}: {error.strerror}, {kept}, {remedy} and give the same command again"
            ) from error

    @property
    def user_path(self) -> Path:
        """The folder as the user named it."""
        return self.path

    def create(self) -> None:
        try:
            for name in self.folders:
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in FULL:
                raise
            raise ConfigError(f"{self.path}: cannot be made, {error.strerror}, choose another `folder`") from error

    def prepare(self, config: str, provenance: Mapping[str, Any]) -> None:
        """Write config and provenance; a run that goes on keeps its first provenance and notes the return."""
        if not (self.path / CONFIG).exists():
            write_whole(self.path / CONFIG, config.encode())
        stored = self.read_provenance()
        broken = self._broken_seal(stored, "the run, resumed")
        withdraw_seal(self.user_path)
        if stored:
            again = {key: provenance[key] for key in AGAIN if key in provenance}
            resumed = [*stored.get("resumed", []), again]
            versions = several_versions(stored.get("gradveil"), resumed)
            added = {key: provenance[key] for key in ADDED if key in provenance}
            provenance = {**added, **stored, "finished": None, "resumed": resumed, **versions, **broken}
        self._write_provenance(provenance)

    def finish(self, closing: Mapping[str, Any] = {}) -> None:
        if SEAL in self.files:
            announce_seal(self.user_path)
        stored = self.read_provenance()
        if "spent" in closing:
            closing = {**closing, "spent": closing["spent"] + stored.get("spent", 0)}
        self._write_provenance({**stored, **closing, "finished": now()})

    def note_broken_seal(self, by: str) -> bool:
        """Whether the seal of a finished run was lost or broken; then the provenance says so from now on."""
        stored = self.read_provenance()
        if broken := self._broken_seal(stored, by):
            self._write_provenance({**stored, **broken})
        return bool(broken)

    def _broken_seal(self, stored: Mapping[str, Any], by: str) -> dict[str, Any]:
        """The entry of the provenance, with those before."""
        problem = find_broken_seal(self.user_path, stored, self.derived) if SEAL in self.files else ""
        event = {"time": now(), "by": f"{by} (gradveil {own_version()})", "problem": problem}
        return {SEALED_AGAIN: [*stored.get(SEALED_AGAIN, []), event]} if problem else {}

    def _write_provenance(self, provenance: Mapping[str, Any]) -> None:
        write_whole(self.path / PROVENANCE, _with_checksum(provenance))

    def save_pictures(self, name: str, pictures: Mapping[str, Tensor]) -> None:
        """`original`, `fed` and `reconstructed` of one client, float32 in [0, 1]."""
        plain = {key: value.detach().float().cpu().contiguous() for key, value in pictures.items()}
        write_whole(self.path / IMAGES / name, save(plain))
