"""Shares for people."""

from __future__ import annotations

import math


def percent(share: float, up: bool = False) -> str:
    """With as many digits as it needs, never rounded to 0 % or 100 % unless it is. An upper bound is rounded up.

    >>> percent(0.02951), percent(0.0100001, up=True), percent(0.527), percent(0.9999), percent(5.13)
    ('2.95 %', '1.01 %', '53 %', '99.9 %', '513 %')
    """
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    if value > 100:  # a ratio and no share: what a client sends may grow
        return f"{max(value, 100.1):.{1 if value < 110 else 0}f} %"
    digits = 2 if value < 3 else 1 if value < 10 or value > 99 else 0
    if up:
        value = math.ceil(value * 10**digits - 1e-9) / 10**digits
    least = 10**-digits
    return f"{min(max(value, least), 100 if up else 100 - least):.{digits}f} %"
