"""How much of its time a run with limited time has used: a line a minute in a log, a bar on a terminal."""

from __future__ import annotations

from typing import TextIO

from gradveil.core.time_limit import TimeLimit
from gradveil.experiment.progress import Bar, Lines, Progress, Silent, for_stream

A_MINUTE = 60.0


class TimedLines(Lines):
    """One line for what is run now and what was done, every `every` seconds at most."""

    def __init__(self, limit: TimeLimit, stream: TextIO | None = None, every: float = A_MINUTE) -> None:
        super().__init__(stream, every)
        self.limit, self.cell, self.trials, self.failed = limit, "", 0, 0
        self.next = 0.0

    def start(self, cell: str, trials: int) -> None:
        self.cell = cell
        self._say_sometimes()

    def step(self, done: int, total: int) -> None:
        self._say_sometimes(f", step {done} of {total}")

    def done(self, trials: int, failed: int) -> None:
        self.trials, self.failed = self.trials + trials, self.failed + failed

    def _say_sometimes(self, more: str = "") -> None:
        if self.limit.elapsed < self.next:
            return
        self.next = self.limit.elapsed + self.every
        spent = f"{self.limit.elapsed:.0f} of {self.limit.seconds:.0f} s"
        self.say(f"[{spent}] {self.trials} trials done, {self.failed} failed; {self.cell}{more}")


class TimedBar(Bar):
    """A bar of the time itself."""

    def __init__(self, limit: TimeLimit, pictures: bool = False) -> None:
        super().__init__(pictures)
        self.limit = limit

    def begin(self, cells: int) -> None:
        super().begin(0)
        self.bar.update(self.task, total=self.limit.seconds)

    def start(self, cell: str, trials: int) -> None:
        super().start(cell, trials)
        self._advance()

    def step(self, done: int, total: int) -> None:
        self._advance()

    def done(self, trials: int, failed: int) -> None:
        self._advance()

    def _advance(self) -> None:
        self.bar.update(self.task, completed=min(self.limit.elapsed, self.limit.seconds))


def in_time(limit: TimeLimit | None, quiet: bool, stream: TextIO | None = None, pictures: bool = False) -> Progress:
    """As `for_stream`, where the time is limited by its share."""
    plain = for_stream(quiet, stream, pictures)
    if limit is None or isinstance(plain, Silent):
        return plain
    return TimedBar(limit, pictures) if isinstance(plain, Bar) else TimedLines(limit, stream)
