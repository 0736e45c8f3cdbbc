"""How hard an attack tries where nobody said it: the one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradveil.config.check import options_of
from gradveil.config.schema import Budget

# The attack's own default, brought into this range. Default steps are the papers'; they differ from 300 to 24,000.
BUDGETS: Mapping[Budget, Mapping[str, tuple[int, int]]] = {
    "quick": {"steps": (1, 300), "restarts": (1, 1)},
    "standard": {"steps": (1, 1200), "restarts": (1, 4)},
    "thorough": {"steps": (1, 24_000), "restarts": (8, 64)},
}


def spend(budget: Budget, factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the budget's steps and restarts, where the attack has them and nobody set them."""
    filled = dict(options)
    for name, (fewest, most) in BUDGETS[budget].items():
        parameter = options_of(factory).get(name)
        if parameter is None or name in filled:
            continue
        if isinstance(parameter.default, int):
            filled[name] = min(max(parameter.default, fewest), most)
        elif parameter.default is None and fewest > 1:  # the attack decides, unless that may be too few
            filled[name] = fewest
    return filled
