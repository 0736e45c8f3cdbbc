"""The truth of a run: an append-only file, one JSON line per trial, each with its CRC and on disk before the next;
trials that end together are written together.

A crash can only tear the end of the file, so a bad tail is cut on open and its trials run again. A bad line that is
followed by others was changed afterwards: it is refused, and nothing is touched.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any
from weakref import WeakSet
from zlib import crc32

from gradveil.core.errors import GradveilError, LockedError
from gradveil.experiment.plausible import find_absurd
from gradveil.experiment.record import Record

_CRC = b',"crc":'
_LISTS = ("flags", "notes")
_NUMBER = (int, float)
_OPTIONAL = (int, float, NoneType)
_NUMBERS = ("scores", "explained", "floors", "fed")  # by name
_KINDS = {"example": int, "seed": int, "seconds": _NUMBER, "loss": _OPTIONAL, "blank": _OPTIONAL, "flags": tuple,
          "notes": tuple, "ranks": dict, **dict.fromkeys(_NUMBERS, dict)}  # all others are texts  # fmt: skip


class JournalError(GradveilError):
    """A journal that cannot be trusted."""


def encode(record: Record) -> bytes:
    """One line, its CRC last. NaN and infinity are not JSON, and are refused."""
    body = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False).encode()
    return b"%s%s%d}\n" % (body[:-1], _CRC, crc32(body))


def decode(line: bytes) -> Record:
    """The record of one line without its end; ValueError if a byte of it has changed."""
    body, mark, crc = line.rpartition(_CRC)
    body += b"}"
    if not mark or crc != b"%d}" % crc32(body):
        raise ValueError("the checksum does not match")
    stored: Any = json.loads(body)
    if not isinstance(stored, dict):
        raise ValueError("not a record")
    for name in _LISTS:
        stored[name] = tuple(stored[name])
    return check_record(Record(**stored))


def check_record(record: Record) -> Record:
    """The right checksum does not make it ours: what reads records relies on their types."""
    wrong = [f.name for f in fields(Record) if not _is(getattr(record, f.name), _KINDS.get(f.name, str))]
    if wrong or not all(isinstance(text, str) for text in (*record.flags, *record.notes)):
        raise ValueError(f"{', '.join(wrong) or 'flags or notes'}: another type than a record has")
    if not all(_is(value, _NUMBER) for name in _NUMBERS for value in getattr(record, name).values()):
        raise ValueError(f"{', '.join(_NUMBERS)}: not numbers")
    if not all(_is_ranks(value) for value in record.ranks.values()):
        raise ValueError("ranks: not lists of whole numbers")
    return record


def _is_ranks(value: Any) -> bool:
    return isinstance(value, list) and all(_is(rank, int) for rank in value)


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def parse(content: bytes, name: str = "journal.jsonl") -> tuple[list[Record], int]:
    """The records, and the number of bytes that hold them: what follows is a torn tail."""
    records: list[Record] = []
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        try:
            if end < 0:
                raise ValueError("the line has no end")
            records.append(decode(content[start:end]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:  # a field more or less: another version's
            if 0 <= end < len(content) - 1:
                raise JournalError(f"{name}: bad record at byte {start}, {error}, restore the file") from error
            break
        if absurd := find_absurd(records[-1]):  # no torn tail: its checksum is right
            raise JournalError(f"{name}: bad record at byte {start}, {absurd}, restore the file")
        start = end + 1
    return records, start


def read(path: Path) -> list[Record]:
    """All records of a journal, without changing it; none if there is no journal yet."""
    if not path.exists():
        return []
    if not path.is_file():  # a pipe would never end
        raise JournalError(f"{path}: not a file, give the folder of a run")
    return parse(path.read_bytes(), path.name)[0]


class Journal:
    """The one writer of a journal: locked while open, the torn tail cut, what is there in `records`."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "ab+", opener=lambda p, flags: os.open(p, flags, 0o600))  # noqa: SIM115
        try:
            self._lock(path)
            self.file.seek(0)
            self.records, sound = parse(self.file.read(), path.name)
            self.file.truncate(sound)
        except BaseException:
            self.file.close()
            raise
        _open.add(self)

    def _lock(self, path: Path) -> None:
        """Again after a moment: a reader who only looks whether a run is at work holds it for no longer."""
        for pause in (0.05, 0.2, None):
            try:
                return fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if pause is None:
                    words = "another run is writing here, wait for it or choose another `folder`"
                    raise LockedError(f"{path}: {words}") from error
                time.sleep(pause)

    def append(self, record: Record) -> None:
        self.extend([record])

    def extend(self, records: Sequence[Record]) -> None:
        """All of them with one wait for the disk, which can take longer than a score on a GPU."""
        self.file.write(b"".join(map(encode, records)))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.records += records

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None):
        self.file.close()


def is_being_written(path: Path) -> bool:
    """Whether a run is at work on this journal now."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


_open: WeakSet[Journal] = WeakSet()


def _leave_to_parent() -> None:
    """A forked child shares the lock, and would keep it when the parent has died."""
    for journal in _open:
        journal.file.close()


os.register_at_fork(after_in_child=_leave_to_parent)
