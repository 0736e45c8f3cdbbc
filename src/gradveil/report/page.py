"""Templates to text: everything is escaped, and what a browser must not be handed is taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gradveil.core.interval import rate_interval
from gradveil.core.percent import percent

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
    environment.filters |= {"code": code, "number": number, "percent": percent, "interval": interval, "size": size,
                            "unbroken": unbroken}  # fmt: skip
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


def unbroken(text: str) -> str:
    """A percent sign stays in the line of its number."""
    return text.replace(" %", "\u00a0%")


def number(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


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
