"""Read a TOML file that a stranger may have written."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from gradveil.core.errors import ConfigError

LARGEST = 1_000_000  # bytes of a file
DEEPEST = 16  # tables and lists inside each other
# tomllib's time grows with the square of a key's parts: a megabyte of a.a.a.a would keep it busy for hours
LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST},}}""")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        text = _content(path).decode("utf-8-sig")
        if LONG_KEY.search(text):
            raise ConfigError(f"{path}: a key of more than {DEEPEST} parts, expected tables of tables at most")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise ConfigError(f"{path}: not TOML in UTF-8, {error}") from error


def _content(path: Path) -> bytes:
    """Of a plain file alone: a pipe could keep us waiting, and a device never ends."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path}: cannot be read, expected a file")
        if found.st_size > LARGEST:
            raise ConfigError(f"{path}: {found.st_size} bytes, expected a config of at most {LARGEST}")
        with path.open("rb") as file:
            return file.read(LARGEST)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read, {getattr(error, 'strerror', None) or error}") from error
