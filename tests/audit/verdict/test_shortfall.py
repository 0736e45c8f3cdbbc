"""A search that explains clearly less of the updates than the truth does has not found what there is to find."""

from __future__ import annotations

import pytest
from runs import hidden

from gradveil.audit.verdict.oracle import find_shortfall


@pytest.mark.parametrize(
    ("found", "truth", "falls_short"), [(0.1, 1.0, True), (0.99, 1.0, False), (1.0, 1.0, False), (0.01, -0.2, False)]
)
def test_a_search_is_held_against_the_truth(found: float, truth: float, falls_short: bool) -> None:
    records = [hidden(i, explained={"truth": truth, "found": found + 0.001 * (i % 2)}) for i in range(8)]
    assert bool(find_shortfall(records)) is falls_short


def test_noise_explains_nothing_and_neither_does_what_fits_it() -> None:
    records = [hidden(i, explained={"truth": 0.05 * (-1) ** i, "found": 0.03 * (-1) ** (i // 2)}) for i in range(8)]
    assert find_shortfall(records) == ""


def test_what_was_not_measured_is_no_shortfall() -> None:
    assert find_shortfall([hidden(i, explained={"truth": 1.0, "reconstruction": 0.0}) for i in range(8)]) == ""
