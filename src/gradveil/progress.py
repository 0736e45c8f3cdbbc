"""How far a run is, and whether it is still wanted: attacks `tick`, whoever listens shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event
from typing import Protocol, TextIO

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


class Progress(Protocol):
    """What `audit.run` tells about its cells. A cell is one attack on one defense."""

    def begin(self, cells: int) -> None: ...
    def start(self, cell: str, trials: int) -> None: ...
    def step(self, done: int, total: int) -> None: ...
    def done(self, trials: int, failed: int) -> None: ...
    def end(self) -> None: ...


class Silent:
    """Tells nothing."""

    def begin(self, cells: int) -> None: ...
    def start(self, cell: str, trials: int) -> None: ...
    def step(self, done: int, total: int) -> None: ...
    def done(self, trials: int, failed: int) -> None: ...
    def end(self) -> None: ...


class Lines:
    """Plain lines, for logs: one when a cell starts, one when it is done, one every `every` seconds between."""

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream, self.every = stream or sys.stderr, every
        self.cells = self.number = 0
        self.since = self.said = time.monotonic()

    def say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
        self.said = time.monotonic()

    def begin(self, cells: int) -> None:
        self.cells = cells

    def start(self, cell: str, trials: int) -> None:
        self.number += 1
        self.since = time.monotonic()
        self.say(f"[{self.number}/{self.cells}] {cell}: {trials} trials")

    def step(self, done: int, total: int) -> None:
        if done and time.monotonic() - self.said >= self.every:
            left = (time.monotonic() - self.since) / done * (total - done)
            self.say(f"    step {done} of {total}, about {left:.0f} s left in this cell")

    def done(self, trials: int, failed: int) -> None:
        self.say(f"    done in {time.monotonic() - self.since:.1f} s, {failed} of {trials} failed")

    def end(self) -> None: ...


class Bar:
    """One bar with the time left, for a terminal. A cell counts as one, however many steps it takes."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task("audit", total=None, start=False)
        self.finished = 0

    def begin(self, cells: int) -> None:
        self.bar.update(self.task, total=cells)
        self.bar.start_task(self.task)
        self.bar.start()

    def start(self, cell: str, trials: int) -> None:
        self.bar.update(self.task, description=cell)

    def step(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=self.finished + done / max(total, 1))

    def done(self, trials: int, failed: int) -> None:
        self.finished += 1
        self.bar.update(self.task, completed=self.finished)

    def end(self) -> None:
        self.bar.stop()


def for_stream(quiet: bool, stream: TextIO | None = None) -> Progress:
    """A bar on a terminal, lines elsewhere, nothing if `quiet`."""
    where: TextIO = stream or sys.stderr
    if quiet:
        return Silent()
    return Bar() if where.isatty() else Lines(where)
