"""The audit that would be run, as settings; the command line writes them as options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradveil.config.schema import AuditConfig
from gradveil.core.check import options_of
from gradveil.core.choice import Choice
from gradveil.data import DATASETS, loader_of
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

OF_CAPTURES = {  # what is to be said beside a capture, which says the rest
    *(f"scenario.{key}" for key in ("capture", "data", "data_options", "model", "normalize", "pictures")),
    "budget", "attack", "lineup", "metrics",
}  # fmt: skip


def look_at_command(subject: Subject) -> Iterator[Finding]:
    yield Finding(topic="command", level="ok", what=" ".join(["gradveil audit", *list_settings(subject.config)]))


def list_settings(config: AuditConfig) -> Iterator[str]:
    """What was declared, each in backticks."""
    captured = bool(config.scenario.capture)
    for key in config.declared:
        if captured and key not in OF_CAPTURES:
            continue
        table, _, name = key.rpartition(".")
        value = getattr(config.scenario if table else config, name)
        if name == "data_options":
            for option, one in value.items():
                if one != options_of(DATASETS[loader_of(config.scenario.data)])[option].default:
                    yield f"`data_options = {option}={one}`"
        elif key in ("defense", "attack"):
            yield from (f"`{key} = {format_choice(choice)}`" for choice in value.values())
        elif key == "metrics":
            yield from (f"`metrics = {metric}`" for metric in value)
        elif value not in ("", (), None):
            yield f"`{name} = {_write(value)}`"


def _write(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def format_choice(choice: Choice) -> str:
    """As on the command line.

    >>> format_choice(Choice(name="gaussian", options={"scale": 0.01}))
    'gaussian:scale=0.01'
    """
    options = ",".join(f"{key}={value}" for key, value in choice.options.items())
    return f"{choice.name}:{options}" if options else choice.name
