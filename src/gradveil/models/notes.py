"""What was filled in or understood by itself, said once on the error stream, or to whoever listens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

_listener: ContextVar[list[str] | None] = ContextVar("listener", default=None)


def say_once(message: str) -> None:
    """A model is made several times in a run: one line is enough."""
    heard = _listener.get()
    if heard is None:
        _print_once(message)
    elif message not in heard:
        heard.append(message)


@cache
def _print_once(message: str) -> None:
    print(message, file=sys.stderr)


@contextmanager
def collect_notes() -> Iterator[list[str]]:
    """Inside, notes are collected and not printed."""
    heard: list[str] = []
    token = _listener.set(heard)
    try:
        yield heard
    finally:
        _listener.reset(token)
