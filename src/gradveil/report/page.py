"""Templates to text: everything is escaped, and what a browser must not be handed is taken out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gradveil.core.interval import rate_interval

TEMPLATES = Path(__file__).parent / "templates"
# controls, direction overrides, halves of letters
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
NOTHING = Markup('<span class="soft">&ndash;</span>')


def render_template(template: str, content: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(content)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters |= {"code": code, "number": number, "percent": percent, "interval": interval, "size": size}
    return environment


def _printable(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return UNPRINTABLE.sub("\ufffd", value)
    return value


def code(text: str) -> Markup:
    """`Words` between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


def number(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


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


def size(count: int) -> str:
    """Bytes for people.

    >>> size(812), size(57_294), size(11_200_000)
    ('812 B', '57.3 kB', '11.2 MB')
    """
    for unit, many in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= many:
            return f"{count / many:.1f} {unit}"
    return f"{count} B"


def interval(hits: int, of: int) -> str:
    """Clopper-Pearson, in percent."""
    between = rate_interval(hits, of)
    return f"{100 * between.low:.0f}\u2013{100 * between.high:.0f} %"
