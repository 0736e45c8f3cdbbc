"""How far training is: loss, accuracy and the time left, as a bar on a terminal and as lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from gradveil.train.result import RoundResult

EVERY = 5.0  # seconds between lines


class RoundProgress:
    """Shows every round. The time left is measured from the first round of this process."""

    def __init__(self, rounds: int, quiet: bool, stream: TextIO | None = None, every: float = EVERY) -> None:
        self.rounds, self.quiet, self.stream, self.every = rounds, quiet, stream or sys.stderr, every
        self.begin = self.printed = time.monotonic()
        self.first: int | None = None
        self.accuracy: float | None = None
        self.bar: Any = None
        if not quiet and self.stream.isatty():
            self.bar = _bar(rounds)

    def round(self, result: RoundResult) -> None:
        self.first = result.round if self.first is None else self.first
        self.accuracy = self.accuracy if result.accuracy is None else result.accuracy
        if self.quiet:
            return
        if result.void or result.dropped:
            self.print_line(f"round {result.round}: {fault(result)}")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=result.round, description=self.line(result))
        elif time.monotonic() - self.printed >= self.every or result.round == self.rounds:
            self.print_line(f"{self.line(result)}, about {self.seconds_left(result.round):.0f} s left")

    def line(self, result: RoundResult) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {100 * self.accuracy:.1f} %"
        return f"round {result.round} of {self.rounds}, loss {result.loss:.3f}{accuracy}"

    def seconds_left(self, round: int) -> float:
        played = round - (self.first or round) + 1
        return (time.monotonic() - self.begin) / played * (self.rounds - round)

    def print_line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text)
        else:
            print(text, file=self.stream, flush=True)
        self.printed = time.monotonic()

    def end(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def fault(result: RoundResult) -> str:
    left_out = f"{', '.join(result.names)} left out, not finite"
    return f"void, {left_out}" if result.void else left_out


def _bar(rounds: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    bar.add_task("training", total=rounds)
    bar.start()
    return bar
