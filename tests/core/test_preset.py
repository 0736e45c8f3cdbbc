"""Presets: a factory with other defaults, checked as the factory's own options are."""

from __future__ import annotations

from typing import Any

import pytest

from gradveil.core.check import check_options, complete, missing_options, options_of
from gradveil.core.errors import ConfigError
from gradveil.core.preset import Preset, paper_of, summary_of

PAPER = "a paper"


def spin(speed: float = 1.0, *, axis: str, turns: tuple[int, ...] | int = 1) -> tuple[Any, ...]:
    """Spin something."""
    return speed, axis, turns


FAST = Preset(spin, "Spin fast.\n\nMuch faster.", fixed=("axis",), speed=9.0, axis="y")


def test_a_preset_builds_with_its_values_and_with_given_ones() -> None:
    assert FAST() == (9.0, "y", 1)
    assert FAST(turns=(1, 2)) == (9.0, "y", (1, 2))
    assert Preset(FAST, "Slow.", speed=0.1)() == (0.1, "y", 1)


def test_its_options_are_those_of_the_factory_with_its_defaults() -> None:
    assert {name: p.default for name, p in options_of(FAST).items()} == {"speed": 9.0, "turns": 1}
    assert complete(FAST, {"turns": 3}) == {"speed": 9.0, "turns": 3}
    assert missing_options(FAST, {}) == []
    assert check_options(FAST, {"speed": 2, "turns": [1, 2]}, str, "") == {"speed": 2.0, "turns": (1, 2)}
    with pytest.raises(ConfigError, match="axis: unknown key"):
        check_options(FAST, {"axis": "x"}, str, "")


def test_its_summary_and_its_paper() -> None:
    assert (summary_of(FAST), summary_of(spin)) == ("Spin fast.", "Spin something.")
    assert paper_of(FAST) == paper_of(spin) == "a paper"


def test_it_sets_nothing_that_the_factory_does_not_take() -> None:
    with pytest.raises(TypeError, match="which its factory does not take"):
        Preset(spin, "Spin.", sped=3.0)
    with pytest.raises(TypeError, match="axis"):
        FAST(axis="x")
