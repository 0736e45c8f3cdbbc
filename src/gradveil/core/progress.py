"""How far a computation is, and whether it is still wanted: attacks `tick`, whoever listens shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

Listener = Callable[[int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("gradveil-progress", default=None)
_stops: ContextVar[tuple[Event, ...]] = ContextVar("gradveil-stops", default=())


def tick(done: int, total: int) -> None:
    """Say that `done` of `total` steps are behind us. Costs nothing when nobody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total)


class Stopped(BaseException):
    """Raised in a thread whose work nobody waits for any more. No failure of a trial, so nothing there catches it."""


@contextmanager
def stoppable() -> Iterator[Event]:
    """Threads started inside, in a copy of this context, leave at their next step once the event is set."""
    event = Event()
    token = _stops.set((*_stops.get(), event))
    try:
        yield event
    finally:
        _stops.reset(token)


def leave_if_stopped() -> None:
    if any(event.is_set() for event in _stops.get()):
        raise Stopped


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hear every `tick` inside."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
