"""Read a TOML file that a stranger may have written, and write TOML.

Written is only what a config holds: tables of tables, scalars and lists; a table in a list is written inline.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradveil.core.errors import ConfigError

LARGEST = 1_000_000  # bytes of a file
DEEPEST = 16  # tables and lists inside each other
# tomllib's time grows with the square of a key's parts: a megabyte of a.a.a.a would keep it busy for hours
LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST},}}""")

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key(name: str) -> str:
    """A bare key where TOML allows it, a quoted one otherwise.

    >>> key("seed"), key("gaussian-0.01")
    ('seed', '"gaussian-0.01"')
    """
    return name if _BARE.fullmatch(name) else text(name)


def text(content: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped."""
    return json.dumps(content, ensure_ascii=False).replace("\x7f", "\\u007f")


def value(content: Any) -> str:
    """One value on one line.

    >>> value(True), value(1e-05), value(("a", 2)), value('say "hi"')
    ('true', '1e-05', '["a", 2]', '"say \\\\"hi\\\\""')
    """
    if isinstance(content, bool):
        return str(content).lower()
    if isinstance(content, int | float):
        return repr(content)
    if isinstance(content, str):
        return text(content)
    if isinstance(content, list | tuple):
        return f"[{', '.join(map(value, content))}]"
    if isinstance(content, Mapping):
        return f"{{{', '.join(f'{key(k)} = {value(v)}' for k, v in content.items())}}}"
    raise TypeError(f"a config holds no {type(content).__name__}")


def dump(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """The table and, after its own values, its subtables; a subtable is written even if it is empty."""
    own = [f"{key(k)} = {value(v)}\n" for k, v in table.items() if not isinstance(v, Mapping)]
    header = f"\n[{'.'.join(map(key, path))}]\n" if path and (own or not table) else ""
    inner = [dump(v, (*path, k)) for k, v in table.items() if isinstance(v, Mapping)]
    return "".join([header, *own, *inner])


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
