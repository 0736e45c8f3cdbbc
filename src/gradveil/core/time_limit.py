"""How much time a run may take, and what is raised when it is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gradveil.core.errors import ConfigError

CONCLUDE, LONGEST = 0.1, 20.0  # share of the time, and seconds at most, that are kept for verdict and page


class OutOfTime(BaseException):
    """Raised where a result is waited for. No failure of a trial, so nothing there catches it."""


@dataclass
class TimeLimit:
    """So many seconds from `start` on, the time for verdict and page among them."""

    seconds: float
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    start: float | None = None  # on the clock; by default now

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ConfigError(f"must be above 0, got {self.seconds:g}", key="seconds")
        self.start = self.clock() if self.start is None else self.start

    @classmethod
    def of(cls, configured: float, given: float | None = None, start: float | None = None) -> TimeLimit | None:
        """What was given, or else configured, where 0 is no limit."""
        seconds = configured if given is None else given
        return cls(seconds, start=start) if seconds or given is not None else None

    @property
    def elapsed(self) -> float:
        assert self.start is not None
        return self.clock() - self.start

    @property
    def remaining(self) -> float:
        """Seconds that the attacks still have."""
        return self.seconds - min(CONCLUDE * self.seconds, LONGEST) - self.elapsed


def show_time(seconds: float) -> str:
    """In the largest unit of which it is one or more.

    >>> [show_time(seconds) for seconds in (0.2, 42, 600, 9000, 400000)]
    ['1 s', '42 s', '10 min', '2.5 h', '4.6 days']
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
