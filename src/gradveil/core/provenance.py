"""What two runs say of themselves: the version that made them, and where their settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

TELLING = 3  # differences named in one line


def own_version() -> str:
    try:
        return version("gradveil")
    except PackageNotFoundError:
        return "not installed"


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every key whose value is not the same, with both values.

    >>> differences({"seed": 1, "data": {"size": 8}}, {"seed": 1, "data": {"size": 9, "crop": True}})
    ['data.crop is absent there, True here', 'data.size is 8 there, 9 here']
    """
    found: list[str] = []
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {_value(old)} there, {_value(new)} here")
    return found


def _value(value: Any) -> str:
    return "absent" if value is None else repr(value)
