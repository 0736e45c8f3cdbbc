"""How hard an attack tries where nobody said it: the one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradveil.config.schema import Effort
from gradveil.core.check import options_of


@dataclass(frozen=True)
class Multiples:
    """Against an attack's own defaults, which are its paper's or better."""

    steps: float  # times
    fewest_restarts: int
    most_restarts: int


EFFORTS: Mapping[Effort, Multiples] = {
    "quick": Multiples(1 / 5, 1, 1),
    "standard": Multiples(1, 1, 64),
    "thorough": Multiples(2, 10, 64),  # ten: invertgrad deals its five weights out twice
}


def apply_effort(budget: Effort, factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the budget's steps and restarts, where the attack has them and nobody set them."""
    effort, known, filled = EFFORTS[budget], options_of(factory), dict(options)
    if "steps" in known and "steps" not in filled and known["steps"].default is not None:
        filled["steps"] = max(1, round(effort.steps * known["steps"].default))
    if "restarts" in known and "restarts" not in filled:
        default = known["restarts"].default
        if default is not None:
            filled["restarts"] = min(max(default, effort.fewest_restarts), effort.most_restarts)
        elif effort.fewest_restarts > 1:  # the attack decides, unless that may be too few
            filled["restarts"] = effort.fewest_restarts
    return filled
