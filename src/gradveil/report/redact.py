"""A run without pictures, client names, class names and paths: for readers who must not see them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gradveil.record import Record
from gradveil.report.run import Run

LEFT_OUT = "[left out]"
TELLING = re.compile(r"class|client|names|command|host|user", re.IGNORECASE)  # keys whose values name someone
PATH = r"\S*[/\\]\S*"


def redacted(run: Run) -> Run:
    """The same measurements. Clients are numbered in the order of the journal."""
    clients = dict.fromkeys(record.client for record in run.records)
    aliases = {client: f"client {number}" for number, client in enumerate(clients, 1)}
    words = aliases | dict.fromkeys(_class_names({**run.config, **run.provenance}), LEFT_OUT)
    return replace(
        run,
        records=tuple(_record(record, aliases, words) for record in run.records),
        config=_value(run.config, words),
        provenance=_value(run.provenance, words),
        redacted=True,
    )


def _record(record: Record, aliases: Mapping[str, str], words: Mapping[str, str]) -> Record:
    return replace(
        record,
        key="",
        client=aliases[record.client],
        reason=_text(record.reason, words),
        notes=tuple(_text(note, words) for note in record.notes),
        images="",
    )


def _class_names(value: Any, telling: bool = False) -> Iterator[str]:
    """Every text below a key that speaks of classes."""
    if isinstance(value, str) and telling:
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _class_names(inner, telling or "class" in str(key).lower())
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _class_names(inner, telling)


def _value(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _text(value, words)
    if isinstance(value, Mapping):
        return {_text(k, words): LEFT_OUT if TELLING.search(k) else _value(v, words) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_value(inner, words) for inner in value]
    return value


def _text(text: str, words: Mapping[str, str]) -> str:
    """In one pass, so that none survives inside another: names, longest first, and whatever looks like a path."""
    names = sorted((word for word in words if word), key=len, reverse=True)
    pattern = "|".join([*(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names), PATH])
    return re.sub(pattern, lambda match: words.get(match[0], LEFT_OUT), text)
