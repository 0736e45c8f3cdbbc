"""How far a run is, as a bar on a terminal and as lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO


class Progress(Protocol):
    """What `audit.run` tells about its cells. A cell is one attack on one defense; `begin(0)`: their number is open."""

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
        of = f"/{self.cells}" if self.cells else ""
        self.say(f"[{self.number}{of}] {cell}: {trials} trials")

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
        self.bar.update(self.task, total=cells or None)
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
