"""How hard an attack tried and what it believed of pictures before: read off the attack itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradveil.attacks import ATTACKS
from gradveil.core.attack import Attack
from gradveil.core.errors import GradveilError

PRIORS = {
    "TotalVariation": "total variation (TV)",
    "Norm": "small values",
    "Box": "values in the box",
    "BatchNormStatistics": "normalization statistics",
}


def steps_and_restarts(choice: Any) -> tuple[int | None, int | None]:
    """None: the attack has no such thing, or it is not known."""
    method, options = _build_attack(choice), choice if isinstance(choice, Mapping) else {}
    steps, restarts = (getattr(method, name, options.get(name)) for name in ("steps", "restarts"))
    return steps, restarts


def describe_effort(choice: Any) -> str | None:
    """In words; None if nothing is known of the attack."""
    steps, restarts = steps_and_restarts(choice)
    if steps is None and restarts is None:
        return "closed form, no search" if _build_attack(choice) else None
    parts = [_count(steps, "step"), _count(restarts, "restart")]
    return ", ".join(part for part in parts if part)


def _count(number: int | None, what: str) -> str:
    return "" if number is None else f"{number:,} {what}{'' if number == 1 else 's'}"


def describe_prior(choice: Any) -> str | None:
    method = _build_attack(choice)
    if method is None:
        return None
    found = [PRIORS.get(type(one).__name__, type(one).__name__) for one in getattr(method, "priors", ())]
    return ", ".join(dict.fromkeys(found)) or "none"


def _build_attack(choice: Any) -> Attack | None:
    """The attack of the catalogue as it was configured; None for one that this version does not have."""
    given = choice if isinstance(choice, Mapping) else {}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    factory = ATTACKS.get(str(options.pop("name", "")))
    try:
        return factory(**options) if factory else None
    except (GradveilError, TypeError, ValueError):
        return None
