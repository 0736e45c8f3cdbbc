"""Write TOML. Only what a config holds: tables of tables, scalars and lists; a table in a list is written inline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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
