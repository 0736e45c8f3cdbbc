"""An empty folder to read a page in, and the catalogues as they were afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradveil.attacks import ATTACKS
from gradveil.defenses import DEFENSES


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, importable; rows and modules that a page adds are gone at the end."""
    tables: list[dict[str, Any]] = [ATTACKS, DEFENSES]
    before = [dict(table) for table in tables]
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
