"""The seal of a finished run: a hash of every file, so that a byte that changed later is noticed.

It shows accidents and careless edits. Whoever may write to the folder can also seal it again: to hold against that,
keep the id elsewhere, or sign it. `jq -S .files seal.json | sha256sum` computes the id without us.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Any

from gradveil.core.errors import ConfigError

SEAL = "seal.json"
SIGNATURE = "signature.json"  # over the id of the seal, see gradveil.experiment.signature
SCHEMA = 1
PART = ".part"  # what a crash left half written; nobody reads it
BLOCK = 1 << 20
EDITED = "or treat the run as edited"


@dataclass(frozen=True, kw_only=True)
class Seal:
    """What a folder held when it was sealed: the hash of each file by its name below the folder."""

    files: Mapping[str, str]
    sealed: str
    id: str


class SealError(ConfigError):
    """A file or a seal that cannot be trusted; the message begins with its name below the folder."""


def seal(folder: Path) -> str:
    """Write seal.json over everything in the folder, and return its id."""
    from gradveil.core.files import private_files, write_whole
    from gradveil.experiment.provenance import now

    try:
        files = {name: _hash(folder, name) for name in sorted(_names(folder))}
    except SealError as error:
        raise ConfigError(f"{folder}/{error}") from error
    content = {"schema": SCHEMA, "files": files, "sealed": now(), "id": _digest(files)}
    with private_files():
        try:
            write_whole(folder / SEAL, _canonical({**content, "check": _digest(content)}))
        except BaseException:
            with suppress(OSError):
                (folder / (SEAL + PART)).touch()  # still to be sealed, see gradveil.experiment.reseal
            raise
    return str(content["id"])


def read_seal(folder: Path) -> Seal:
    """The seal of a folder; SealError if it is not there or not as it was written."""
    path = folder / SEAL
    if not os.path.lexists(path):
        raise SealError(f"{SEAL}: not there, the run was not finished or was made by an older version, run it again")
    try:
        if path.is_symlink() or not path.is_file():
            raise ValueError("a link or a device")
        return _parse(path.read_bytes())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SealError(f"{SEAL}: changed since the run was sealed, restore it {EDITED}") from error


def find_changes(folder: Path) -> list[str]:
    """One line for each thing that is not as it was sealed, each beginning with a name; none if nothing changed."""
    try:
        sealed = read_seal(folder).files
        there = set(_names(folder))
    except SealError as error:
        return [str(error)]
    found = (_problem(folder, name, name in there, sealed.get(name)) for name in sorted(there | sealed.keys()))
    return [line for line in found if line]


def _problem(folder: Path, name: str, there: bool, sealed: str | None) -> str:
    if not there:
        return f"{_on_one_line(name)}: missing since the run was sealed, restore it {EDITED}"
    if sealed is None:
        return f"{_on_one_line(name)}: was not there when the run was sealed, remove it {EDITED}"
    try:
        same = _hash(folder, name) == sealed
    except SealError as error:
        return str(error)
    return "" if same else f"{_on_one_line(name)}: changed since the run was sealed, restore it {EDITED}"


def _names(folder: Path, below: str = "") -> Iterator[str]:
    """Whatever lies in the folder and its folders; only the seal, its signature and half-written files are left out."""
    try:
        entries = list(os.scandir(folder / below))
    except OSError as error:
        raise SealError(
            f"{_on_one_line(below) or '.'}: cannot be read, {error.strerror}, mend its permissions"
        ) from error
    for entry in entries:
        name = below + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _names(folder, f"{name}/")
        elif name not in (SEAL, SIGNATURE) and not (name.endswith(PART) and entry.is_file(follow_symlinks=False)):
            yield name


def _hash(folder: Path, name: str) -> str:
    """SHA-256 of a plain file; links are refused, for what they lead to can change unseen."""
    path, total = f"{folder}/{name}", hashlib.sha256()
    try:
        status = os.lstat(path)
        if not S_ISREG(status.st_mode):
            raise SealError(f"{_on_one_line(name)}: a link or a device, put a plain file there {EDITED}")
        with open(path, "rb", buffering=0) as file:
            while block := file.read(min(BLOCK, status.st_size + 1)):
                total.update(block)
    except OSError as error:
        raise SealError(f"{_on_one_line(name)}: cannot be read, {error.strerror}, mend its permissions") from error
    return total.hexdigest()


def _parse(content: bytes) -> Seal:
    """Written as we write it and true to itself: a change of any byte breaks one or the other."""
    stored = json.loads(content)
    check = stored.pop("check")
    sound = (
        content == _canonical({**stored, "check": check})
        and check == _digest(stored)
        and stored["id"] == _digest(stored["files"])
        and all(isinstance(digest, str) for digest in stored["files"].values())
        and stored["sealed"] == datetime.fromisoformat(stored["sealed"]).isoformat(timespec="seconds")
    )
    if not sound:
        raise ValueError("not as it was written")
    if stored["schema"] != SCHEMA:
        raise SealError(
            f"{SEAL}: written by another version, schema {stored['schema']!r}, verify the run with that one"
        )
    return Seal(files=stored["files"], sealed=stored["sealed"], id=stored["id"])


def _canonical(value: Any) -> bytes:
    """One way to write a value, the same as jq's."""
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


def _on_one_line(name: str) -> str:
    """A name on one line."""
    return "".join(letter if letter.isprintable() else " " for letter in name)
