"""Where a method comes from. Every method's module names its paper as `PAPER`; None: it is ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """Where a method comes from."""

    title: str
    authors: str
    year: int
    where: str

    def __str__(self) -> str:
        return f"{self.authors}, {self.title}, {self.year}, {self.where}"
