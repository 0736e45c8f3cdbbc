"""The audit that would be run, as settings; the command line writes them as options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradveil.core.choice import Choice
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject


def look_at_command(subject: Subject) -> Iterator[Finding]:
    given: dict[str, Any] = dict(subject.tables.get("scenario", {}))
    shown = [f"`{key} = {_write(value)}`" for key, value in given.items() if value not in ("", None, [], {})]
    shown += [f"`defense = {format_choice(label, c)}`" for label, c in subject.config.defense.items()]
    if "budget" in subject.tables:
        shown.append(f"`budget = {subject.tables['budget']}`")
    yield Finding(topic="command", level="ok", what=f"audit {' '.join(shown)}")


def _write(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def format_choice(label: str, choice: Choice) -> str:
    """As on the command line.

    >>> format_choice("none", Choice(name="none"))
    'none'
    """
    options = ",".join(f"{key}={value}" for key, value in choice.options.items())
    return f"{choice.name}:{options}" if options else choice.name
