"""The line that a verdict holds under names what makes an update harder or easier to read."""

from __future__ import annotations

from typing import Any

import pytest
from runs import run_of, undefended

from gradveil.audit.verdict.conditions import describe_conditions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "; 1 local step; 4 pictures; "),
        ({"aggregate": 1, "rounds": 1}, "; 1 local step; 4 pictures; "),
        ({"aggregate": 3}, "; 1 local step; sums over 3 clients; 4 pictures; "),
        ({"aggregate": 3, "rounds": 5}, "; sums over 3 clients; 5 rounds; 4 pictures; "),
    ],
)
def test_sums_and_rounds_are_named_where_there_are_any(given: dict[str, Any], said: str) -> None:
    run = run_of(undefended(4))
    run.config["scenario"].update(given)  # type: ignore[attr-defined]
    assert said in describe_conditions(run)


def test_options_that_are_not_the_default_are_named() -> None:
    run = run_of(undefended(4))
    run.config["attack"]["a"] = {"name": "invertgrad", "steps": 150, "restarts": 1, "rate": 0.0}  # type: ignore[index]
    assert "rate 0 instead of 0.1" in describe_conditions(run)
    run.config["attack"]["a"] = {"name": "linear"}  # type: ignore[index]
    assert "instead of" not in describe_conditions(run)
