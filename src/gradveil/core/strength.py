"""The option that makes a defense stronger, and the values of it that are worth trying."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

DIGITS = 3  # of a value that is tried or advised
BY_FACTOR, BY_REST = 8, 4  # values for each factor of ten


@dataclass(frozen=True)
class Strength:
    """An option and its ladder of values, the weakest first.

    >>> Strength.by_factor("scale", 0.01, 0.1, each=2)
    Strength(option='scale', ladder=(0.01, 0.0316, 0.1))
    >>> Strength.by_rest("ratio", 2, each=1)
    Strength(option='ratio', ladder=(0.0, 0.9, 0.99))
    """

    option: str
    ladder: tuple[Any, ...]

    @classmethod
    def by_factor(cls, option: str, low: float, high: float, each: int = BY_FACTOR) -> Strength:
        """From one end to the other by equal factors, `each` for a factor of ten."""
        steps = round(each * abs(math.log10(high / low)))
        return cls(option, tuple(shorten(low * (high / low) ** (step / steps)) for step in range(steps + 1)))

    @classmethod
    def by_rest(cls, option: str, nines: int, each: int = BY_REST) -> Strength:
        """Shares from 0 to 0.99..., of which what is left falls by equal factors."""
        return cls(option, tuple(round(1 - 10 ** (-step / each), nines + 1) for step in range(nines * each + 1)))

    @property
    def grows(self) -> bool:
        """Whether a greater number is stronger."""
        first, last = self.ladder[0], self.ladder[-1]
        return isinstance(first, int | float) and first < last


def shorten(value: float, digits: int = DIGITS) -> float:
    """To so many digits.

    >>> shorten(0.012345), shorten(12345.0)
    (0.0123, 12300.0)
    """
    return float(f"{value:.{digits}g}")
