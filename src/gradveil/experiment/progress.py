"""How far a run is, as a bar on a terminal and as lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

from torch import Tensor

from gradveil.core.time_limit import show_time


class Progress(Protocol):
    """What `audit.run` tells about its cells. A cell is one attack on one defense; `begin(0)`: their number is open."""

    def begin(self, cells: int) -> None: ...
    def start(self, cell: str, trials: int) -> None: ...
    def step(self, done: int, total: int) -> None: ...
    def done(self, trials: int, failed: int) -> None: ...
    def expect(self, seconds: float) -> None: ...  # that the rest of the run takes, by what was measured
    def show(self, picture: Tensor, words: str) -> None: ...  # [channel, height, width]: the worst one so far
    def end(self) -> None: ...


class Silent:
    """Tells nothing."""

    def begin(self, cells: int) -> None: ...
    def start(self, cell: str, trials: int) -> None: ...
    def step(self, done: int, total: int) -> None: ...
    def done(self, trials: int, failed: int) -> None: ...
    def expect(self, seconds: float) -> None: ...
    def show(self, picture: Tensor, words: str) -> None: ...
    def end(self) -> None: ...


class Lines:
    """Plain lines, for logs: one when a cell starts, one when it is done, one every `every` seconds between."""

    def __init__(self, stream: TextIO | None = None, every: float = 10.0) -> None:
        self.stream, self.every = stream or sys.stderr, every
        self.cells = self.number = 0
        self.since = self.said = time.monotonic()
        self.remaining: float | None = None  # seconds, where it is known

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
        more = "" if not self.remaining else f", about {show_time(self.remaining)} left in the run"
        self.say(f"    done in {time.monotonic() - self.since:.1f} s, {failed} of {trials} failed{more}")

    def expect(self, seconds: float) -> None:
        self.remaining = seconds

    def show(self, picture: Tensor, words: str) -> None: ...

    def end(self) -> None: ...


class Bar:
    """One bar with the time left, for a terminal. A cell counts as one, however many steps it takes.

    pictures: whether reconstructions are drawn above it.
    """

    def __init__(self, pictures: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.pictures = pictures
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

    def expect(self, seconds: float) -> None: ...

    def show(self, picture: Tensor, words: str) -> None:
        if self.pictures:
            from gradveil.experiment.half_blocks import draw

            self.bar.console.print(draw(picture))
            self.bar.console.print(words, markup=False)

    def end(self) -> None:
        self.bar.stop()


def for_stream(quiet: bool, stream: TextIO | None = None, pictures: bool = False) -> Progress:
    """A bar on a terminal, with reconstructions above it if asked for; lines elsewhere, nothing if `quiet`."""
    where: TextIO = stream or sys.stderr
    if quiet:
        return Silent()
    return Bar(pictures) if where.isatty() else Lines(where)
