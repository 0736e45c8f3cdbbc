"""Files that only their owner can read, written whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    try:
        with open(part, "wb", opener=_no_link) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _no_link(path: str, flags: int) -> int:
    """A link that was planted under the name of a new file would lead the writing elsewhere."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def sync_folder(folder: Path) -> None:
    """A new name is on disk only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


SCRATCH = ".part"  # below the folder of a run
_scratch: list[Path | None] = []  # of the runs that are on their way, the innermost last


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """Inside, files with private pictures go below `folder`; they are removed at the end, and what a kill left at the
    beginning. None: nothing may be written yet."""
    place = (folder or Path()) / SCRATCH
    if folder is not None:
        _remove(place)
    _scratch.append(None if folder is None else place)
    try:
        yield place
    finally:
        _scratch.pop()
        if folder is not None:
            _remove(place)


def _remove(place: Path) -> None:
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)


def picture_cache() -> Path | None:
    """Where pictures may be kept: in the run that is on its way, in the user's cache outside of a run, or nowhere."""
    return _scratch[-1] if _scratch else cache_folder()


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "gradveil"


def slug(text: str) -> str:
    """A text as the name of a file or folder."""
    return re.sub("[^A-Za-z0-9.+-]+", "_", text)
