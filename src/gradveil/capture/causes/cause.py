"""What a reason is: ways to change a story, each in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradveil.capture.causes.story import Evidence, Story


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The story with one thing changed."""

    name: str  # what would be the case
    story: Story
    do: str = ""  # what to do if it is
    freedom: int = 0  # numbers that were fitted: of two that fit alike the one with fewer is believed
    quick: bool = True  # whether a replay tries it too


@dataclass(frozen=True)
class Cause:
    """A kind of reason. `quick`: every replay tries it; `slow`: many rounds are played for it."""

    attempts: Callable[[Story, Evidence], Iterator[Attempt]]
    quick: bool = False
    slow: bool = False
