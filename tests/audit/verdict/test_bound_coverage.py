"""A bound holds as often as it says, however the leaks fall on the updates; counted by picture it would not.

Pictures of one update leak together or one by one. Where they fall in units of equal size that leak by themselves with
the same probability, how often the bound holds is a sum over a binomial distribution, and no simulation is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from runs import defended, hidden, record, run_of, undefended
from scipy.stats import binom

from gradveil.audit.verdict import Finding, judge
from gradveil.core.interval import at_least_of, at_most, at_most_of

SHAPES = [(300, 1), (20, 16), (10, 32), (5, 64)]  # updates, pictures in each
UNITS: dict[str, Callable[[int], int]] = {
    "whole": lambda size: 1,
    "halves": lambda size: min(2, size),
    "independent": lambda size: size,
}
RATES = np.linspace(0.001, 0.999, 499)
Bound = Callable[[Sequence[float]], float]


def shares(leaked: int, updates: int, units: int) -> list[float]:
    """One way to have `leaked` units of `units` in each of the updates: the first updates whole."""
    return [min(max(leaked - units * update, 0), units) / units for update in range(updates)]


@cache
def bounds(bound: Bound, updates: int, units: int) -> np.ndarray:
    return np.array([bound(shares(leaked, updates, units)) for leaked in range(updates * units + 1)])


def coverage(bound: Bound, updates: int, units: int, holds: Callable[[np.ndarray, float], np.ndarray]) -> float:
    """The probability that the bound holds, at the rate where it is smallest."""
    found, total = bounds(bound, updates, units), updates * units
    return min(float(binom.pmf(np.arange(total + 1), total, rate) @ holds(found, rate)) for rate in RATES)


@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize(("updates", "size"), SHAPES)
def test_no_rate_is_above_its_bound_in_more_than_one_of_twenty(updates: int, size: int, kind: str) -> None:
    assert coverage(at_most_of, updates, UNITS[kind](size), np.greater_equal) >= 0.95


@pytest.mark.parametrize("kind", UNITS)
@pytest.mark.parametrize(("updates", "size"), SHAPES)
def test_no_rate_is_below_its_bound_in_more_than_one_of_twenty(updates: int, size: int, kind: str) -> None:
    assert coverage(at_least_of, updates, UNITS[kind](size), np.less_equal) >= 0.95


def test_counted_by_picture_it_would_be_wrong_in_more_than_half() -> None:
    """Ten updates of 32 pictures, of which one in twenty leaks whole: the test above can fail."""

    def by_picture(of_updates: Sequence[float]) -> float:
        return at_most(round(32 * sum(of_updates)), 32 * len(of_updates))

    found = bounds(by_picture, 10, 1) >= 0.05
    assert binom.pmf(np.arange(11), 10, 0.05) @ found < 0.5


def drawn(updates: int, size: int, rate: float, alike: float, count: int) -> np.ndarray:
    """Shares [draw, update]: every update has a rate of its own (beta), the more alike the nearer to the mean."""
    rng = np.random.default_rng([updates, size, int(1000 * rate), int(1000 * alike)])
    own = rng.beta(alike * rate, alike * (1 - rate), (count, updates))
    return rng.binomial(size, own) / size


def check_drawn(count: int, slack: float) -> None:
    for updates, size in SHAPES:
        for rate in (0.01, 0.05, 0.2, 0.5, 0.9):
            for alike in (0.1, 1.0, 10.0):
                sample = drawn(updates, size, rate, alike, count)
                above = np.mean([at_most_of(row) >= rate for row in sample.tolist()])
                below = np.mean([at_least_of(row) <= rate for row in sample.tolist()])
                assert min(above, below) >= 0.95 - slack, (updates, size, rate, alike)


def test_updates_that_differ_are_covered_too() -> None:
    check_drawn(200, 0.05)  # three standard deviations of a share of 200


@pytest.mark.more
def test_updates_that_differ_are_covered_in_ten_thousand_draws() -> None:
    check_drawn(10_000, 0.0066)


def in_batches(updates: int, size: int) -> Finding:
    """Nothing leaks under the defense, everything without it, to attackers of both kinds."""
    groups = [undefended(20), *(defended(updates, make=picture(example)) for example in range(size))]
    (found,) = (f for f in judge(run_of(*groups)).findings if f.tally.defense == "d")
    return found


def picture(example: int) -> Callable[..., object]:
    return lambda client, **more: hidden(client, example=example, **more)


@pytest.mark.parametrize(
    ("updates", "size", "claim", "supported"),
    [(10, 30, 0.01, False), (300, 1, 0.01, True), (298, 1, 0.01, False), (10, 30, 0.26, True), (10, 1, 0.26, True)],
)
def test_a_claim_needs_updates_and_not_pictures(updates: int, size: int, claim: float, supported: bool) -> None:
    found = in_batches(updates, size)
    assert found.verdict == "no leak found"
    assert found.supports(claim) is supported


@pytest.mark.parametrize(("draw", "bound"), [("seed", True), ("first", False)])
def test_pictures_that_were_not_drawn_have_no_bound(draw: str, bound: bool) -> None:
    """A bound is about the data that a sample was drawn from."""
    run = run_of(undefended(20), defended(300))
    run = replace(run, config=run.config | {"scenario": {**run.scenario, "draw": draw}})
    (found,) = (f for f in judge(run).findings if f.tally.defense == "d")
    assert found.verdict == "no leak found"
    assert (found.at_most is not None) is found.supports(0.01) is bound
    assert ("so there is no bound" in found.reasons[0]) is not bound
    assert ("at most" in " ".join(found.reasons)) is bound


def test_one_update_that_leaks_whole_is_a_leak() -> None:
    leaking = [record(0, example=example, defense="d", attacker="adaptive") for example in range(30)]
    groups = [undefended(20), *(defended(10, make=picture(example)) for example in range(30))]
    kept = [[r for r in group if (r.client, r.attacker, r.defense) != ("c0000", "adaptive", "d")] for group in groups]
    (found,) = (f for f in judge(run_of(*kept, leaking)).findings if f.tally.defense == "d")
    assert found.verdict == "leaks"
    assert found.tally.leaked == 30
