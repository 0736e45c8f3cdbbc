"""A search that takes a second or two, for the tests around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradveil.search.settings import SearchSettings

SMALL = SearchSettings(
    data_options={"count": 64, "size": 16},
    candidates=10,
    top=4,
    images=8,
    rounds=2,
    confirm=0,
    semi_epochs=2,
    threshold="100%",
    include=("47", "0", "3-1-7"),
)


def small(**changes: Any) -> SearchSettings:
    return replace(SMALL, **changes)


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield
