"""`policy.json`, as `gradveil search` writes it: the policy that was found, and the library that its numbers are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradveil.core.errors import ConfigError
from gradveil.transforms.library import LIBRARIES, Library, entry_of
from gradveil.transforms.policy import Policy

SCHEMA = 1
LARGEST = 10_000_000  # bytes; a search may list every policy that it tried


def read_policy(path: Path) -> Policy:
    """The hybrid of a search."""
    found = _content(path)
    hybrid = found.get("hybrid")
    if found.get("schema") != SCHEMA or not isinstance(hybrid, str):
        raise ConfigError(f"{path}: expected schema {SCHEMA} and a policy as hybrid, give a file of gradveil search")
    if not hybrid:
        raise ConfigError(f"{path}: this search found no policy, search again with a lower threshold")
    library = _library(found.get("library"), path)
    try:
        return Policy.parse(hybrid, library)
    except ConfigError as error:
        raise ConfigError(f"{path}: hybrid: {error}") from error


def _content(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the policy.json of gradveil search, or a policy such as 3-1-7")
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"{path}: {path.stat().st_size} bytes, expected a policy.json of at most {LARGEST}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON, {error}, give the policy.json of gradveil search") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: not a table, give the policy.json of gradveil search")
    return found


def _library(table: Any, path: Path) -> Library:
    """The entries as they are in the file, under the name of the table only where they are those of the table."""
    rows = table.get("entries") if isinstance(table, dict) else None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: library.entries: expected pairs of operation and magnitude")
    for place, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2:
            raise ConfigError(
                f"{path}: library: entry {place}: expected an operation and its magnitude, got {row!r:.100}"
            )
    entries = tuple(entry_of(row[0], row[1], f"{path}: library: entry {place}") for place, row in enumerate(rows))
    return next((known for known in LIBRARIES.values() if known.entries == entries), Library("own", entries))
