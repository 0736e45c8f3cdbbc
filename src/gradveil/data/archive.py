"""Files of unknown origin in a folder or a zip: all names are checked before the first is read, nothing is unpacked."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from gradveil.core.errors import ConfigError

MOST = 200_000
LARGEST = 64 * 2**20  # bytes of one file
EXPANDS_FREELY, EXPANSION = 2**20, 100  # bytes; beyond them, how many times its stored size a file may have


@dataclass(frozen=True, kw_only=True)
class Files:
    """Names relative to the root, sorted, and a way to read each. Hidden files are left out."""

    where: Path
    names: tuple[str, ...]
    read: Callable[[str], bytes]


@contextmanager
def open_files(root: Path) -> Iterator[Files]:
    """The files of a zip, or of a folder and the folders in it."""
    if root.is_dir():
        yield _folder(root)
        return
    if not root.is_file():
        raise ConfigError(f"{root}: no such folder or zip file, give the path of one")
    with _name_faults(root):
        archive = zipfile.ZipFile(root)
    with archive:
        with _name_faults(root):
            members = _members(root, archive)
        yield Files(where=root, names=tuple(sorted(members)), read=partial(_extract, root, archive, members))


def _extract(root: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> bytes:
    with _name_faults(f"{root}: {name}"):
        return archive.read(members[name])


@contextmanager
def _name_faults(where: Path | str) -> Iterator[None]:
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # zipfile and zlib raise nearly anything on bytes made to confuse them
        message = " ".join(str(error).split())[:300]
        raise ConfigError(f"{where}: damaged or not a zip file ({message}), make the zip again") from error


def _members(root: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    _check_count(root, len(entries))
    if sum(entry.compress_size for entry in entries) > root.stat().st_size:
        raise ConfigError(f"{root}: its members claim more bytes than the file has, make the zip again")
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename
        _check_member(f"{root}: {name[:200]!r}", entry)
        if name in members:
            raise ConfigError(f"{root}: {name[:200]!r} is there twice, make the zip again")
        if not _is_hidden(PurePosixPath(name)):
            members[name] = entry
    return members


def _check_member(where: str, entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or ":" in parts[0] or {"", ".", ".."} & set(parts):
        raise ConfigError(f"{where} is no plain path inside the zip, make the zip again")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise ConfigError(f"{where} is a link, put the file itself into the zip")
    if entry.flag_bits & 1:
        raise ConfigError(f"{where} is encrypted, make a zip without a password")
    check_size(where, entry.file_size)
    if entry.file_size > EXPANDS_FREELY and entry.file_size > EXPANSION * entry.compress_size:
        raise ConfigError(
            f"{where} would grow from {entry.compress_size:,} to {entry.file_size:,} bytes, more than {EXPANSION} "
            "times; remove it, or make the zip without compression if it is really so"
        )


def _folder(root: Path) -> Files:
    names: list[str] = []
    for place, folders, files in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not _is_hidden(PurePosixPath(name))]
        for name in (*folders, *files):
            _check_inside(Path(place) / name, root)
        names += [(Path(place) / name).relative_to(root).as_posix() for name in files if not name.startswith(".")]
        _check_count(root, len(names))
    return Files(where=root, names=tuple(sorted(names)), read=partial(_read, root))


def _check_inside(path: Path, root: Path) -> None:
    """A folder from elsewhere could show pictures of yours through a link."""
    if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(root.resolve())):
        raise ConfigError(f"{path}: a link that leads out of {root} or to a folder, copy the pictures instead")


def _read(root: Path, name: str) -> bytes:
    path = root / name
    if not path.is_file():
        raise ConfigError(f"{path}: not a file, remove it")
    check_size(str(path), path.stat().st_size)
    return path.read_bytes()


def check_size(where: str, size: int) -> None:
    if size > LARGEST:
        raise ConfigError(f"{where}: {size:,} bytes, the limit for one file is {LARGEST:,}, make it smaller")


def _check_count(root: Path, count: int) -> None:
    if count > MOST:
        raise ConfigError(f"{root}: more than {MOST:,} files, use a part of them")


def _is_hidden(path: PurePosixPath) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
