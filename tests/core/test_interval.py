from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from gradveil.core.interval import (
    RESAMPLES,
    Interval,
    _bca,
    _resampled_means,
    at_least,
    at_most,
    mean_interval,
    rate_interval,
    supports,
)

SIZES = (5, 8, 30, 100, 300)
RATES = (0.001, 0.01, 0.1, 0.5, 0.9)
DRAWS = 10_000
ROUNDING = 1e-12

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
DISTRIBUTIONS: dict[str, tuple[Draw, float]] = {  # how to draw, and the true mean
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "uniform": (lambda rng, shape: rng.uniform(size=shape), 0.5),
    "gamma": (lambda rng, shape: rng.gamma(4, size=shape), 4.0),
}


def test_no_torch_behind_a_number() -> None:
    probe = "import sys, gradveil.core.interval; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@pytest.mark.parametrize(("of", "percent"), [(100, 2.95), (300, 0.99), (1000, 0.30)])
def test_what_no_hit_at_all_supports(of: int, percent: float) -> None:
    assert round(100 * at_most(0, of), 2) == percent
    assert at_most(0, of) == pytest.approx(1 - 0.05 ** (1 / of))


def test_at_most_one_percent_takes_299_pictures() -> None:
    assert not supports(0.01, 0, 298)
    assert supports(0.01, 0, 299)
    assert not supports(0.01, 1, 299)
    assert not supports(0.01, 0, 299, level=0.99)
    assert supports(1.0, 5, 5)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("of", [1, 2, 5, 8, 30, 300])
def test_rates_against_scipy(of: int, level: float) -> None:
    for hits in {*range(0, of + 1, max(1, of // 20)), 1, of - 1, of}:
        exact = stats.binomtest(hits, of).proportion_ci(level, "exact")
        ours = rate_interval(hits, of, level)
        assert (ours.low, ours.high) == pytest.approx((exact.low, exact.high), rel=1e-9, abs=1e-12)
        above = stats.binomtest(hits, of, alternative="less").proportion_ci(level, "exact").high
        below = stats.binomtest(hits, of, alternative="greater").proportion_ci(level, "exact").low
        assert at_most(hits, of, level) == pytest.approx(above, rel=1e-9)
        assert at_least(hits, of, level) == pytest.approx(below, rel=1e-9, abs=1e-12)


def test_nothing_tried_is_nothing_known() -> None:
    assert rate_interval(0, 0) == Interval(0, 1)
    assert (at_least(0, 0), at_most(0, 0)) == (0, 1)
    assert not supports(0.99, 0, 0)


@pytest.mark.parametrize(("hits", "of", "level"), [(-1, 5, 0.9), (6, 5, 0.9), (0, -1, 0.9), (1, 5, 0.0), (1, 5, 1.0)])
def test_what_is_not_a_rate_is_refused(hits: int, of: int, level: float) -> None:
    for function in (rate_interval, at_most, at_least):
        with pytest.raises(ValueError, match="expected"):
            function(hits, of, level)


@pytest.mark.more
@pytest.mark.parametrize("of", SIZES)
@pytest.mark.parametrize("rate", RATES)
def test_rates_are_covered_exactly_and_in_simulation(of: int, rate: float) -> None:
    intervals = [rate_interval(hits, of) for hits in range(of + 1)]
    chance = stats.binom.pmf(np.arange(of + 1), of, rate)
    covered = np.array([i.low <= rate <= i.high for i in intervals])
    assert chance[covered].sum() >= 0.95 - ROUNDING
    for bounded in (
        np.array([rate <= at_most(hits, of) for hits in range(of + 1)]),
        np.array([at_least(hits, of) <= rate for hits in range(of + 1)]),
    ):
        assert chance[bounded].sum() >= 0.95 - ROUNDING
    drawn = np.random.default_rng(of).binomial(of, rate, DRAWS)
    assert covered[drawn].mean() >= 0.945  # 0.95 less two standard errors of the simulation
    assert covered[drawn].mean() == pytest.approx(chance[covered].sum(), abs=0.01)


@pytest.mark.parametrize("of", SIZES)
@pytest.mark.parametrize("claim", RATES)
def test_a_claim_that_is_not_true_is_seldom_supported(of: int, claim: float) -> None:
    hits = np.arange(of + 1)
    supported = np.array([supports(claim, int(h), of) for h in hits])
    truth = np.nextafter(claim, 1)  # the hardest case: barely more leak than claimed
    assert stats.binom.pmf(hits, of, truth)[supported].sum() <= 0.05 + ROUNDING


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [5, 30, 300])
def test_means_against_scipy_on_the_same_resamples(name: str, n: int) -> None:
    drawn = DISTRIBUTIONS[name][0](np.random.default_rng(1), (1, n))
    values = np.sort(np.round(drawn * 1024) / 1024)  # sums are exact, so that scipy sees every tie
    same = SimpleNamespace(bootstrap_distribution=_resampled_means(values, RESAMPLES)[0])
    scipys = stats.bootstrap((values[0],), np.mean, method="BCa", n_resamples=0, bootstrap_result=same)
    ours = mean_interval(values[0])
    assert ours is not None
    low, high = scipys.confidence_interval
    assert (ours.low, ours.high) == pytest.approx((low, high), rel=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_means_against_scipy_on_other_resamples(name: str) -> None:
    values = DISTRIBUTIONS[name][0](np.random.default_rng(2), (1, 60))[0]
    drawn = np.random.default_rng(3).choice(values, (40_000, 60)).mean(-1)
    others = SimpleNamespace(bootstrap_distribution=drawn)
    scipys = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=0, bootstrap_result=others)
    low, high = scipys.confidence_interval
    ours = mean_interval(values)
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_resamples_are_drawn_with_equal_chances() -> None:
    ones = np.eye(7)
    drawn = _resampled_means(ones, RESAMPLES) * 7  # how often value i came in resample r
    np.testing.assert_allclose(drawn.sum(0), 7)
    assert drawn.mean() == pytest.approx(1)
    # binomial(7, 1/7): variance 6/7, and two values compete for the same draws: covariance -1/7
    np.testing.assert_allclose(np.cov(drawn), np.eye(7) - 1 / 7, atol=0.08)


def test_order_does_not_matter_and_neither_does_the_time_of_day() -> None:
    values = np.random.default_rng(4).gamma(2, size=50).tolist()
    first = mean_interval(values)
    np.random.default_rng().random(10)
    shuffled = values[:]
    random.Random(0).shuffle(shuffled)
    assert shuffled != values
    assert mean_interval(shuffled) == first == mean_interval(tuple(reversed(values))) == mean_interval(np.array(values))


def test_one_sample_alone_is_the_same_as_among_others() -> None:
    samples = np.random.default_rng(5).normal(20, 4, size=(9, 40))
    for row, (low, high) in zip(samples, _bca(samples, 0.9), strict=True):
        alone = mean_interval(row, level=0.9)
        assert alone is not None
        assert (alone.low, alone.high) == pytest.approx((low, high), rel=1e-12)


def test_moves_and_scales_with_the_values() -> None:
    values = np.random.default_rng(6).gamma(4, size=30)
    plain, moved = mean_interval(values), mean_interval(1e3 + 1e-6 * values)
    assert plain is not None
    assert moved is not None
    assert ((moved.low - 1e3) * 1e6, (moved.high - 1e3) * 1e6) == pytest.approx((plain.low, plain.high), abs=1e-5)


def test_ties_count_half_whatever_the_rounding() -> None:
    whole = mean_interval([0, 0, 0, 1, 1, 1, 1, 0, 1, 0])
    tenths = mean_interval([x + 0.1 for x in (0, 0, 0, 1, 1, 1, 1, 0, 1, 0)])  # 0.1 has no exact binary form
    assert whole is not None
    assert tenths is not None
    assert (tenths.low, tenths.high) == pytest.approx((whole.low + 0.1, whole.high + 0.1))
    assert whole.low + whole.high == pytest.approx(1, abs=0.05)  # symmetric values


def test_few_or_equal_or_strange_values() -> None:
    assert mean_interval([]) is None
    assert mean_interval([3.0]) is None
    assert mean_interval([0.1] * 7) == Interval(0.1, 0.1)
    assert mean_interval([1.0, 2.0]) == Interval(1.0, 2.0)
    for strange in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite"):
            mean_interval([1.0, strange])
    with pytest.raises(ValueError, match="level"):
        mean_interval([1.0, 2.0], level=95)


def test_a_higher_level_is_wider() -> None:
    values = np.random.default_rng(7).gamma(4, size=30)
    narrow, wide = mean_interval(values, 0.9), mean_interval(values, 0.99)
    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < values.mean() < narrow.high < wide.high


def test_it_needs_little_memory() -> None:
    values = np.random.default_rng(8).normal(size=10_000)
    tracemalloc.start()
    mean_interval(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def coverage(name: str, n: int, draws: int, seed: int = 0, batch: int = 1_000) -> float:
    """How often the interval of a mean at 95 % holds the true one."""
    draw, truth = DISTRIBUTIONS[name]
    rng = np.random.default_rng(seed)
    ends = np.concatenate([_bca(draw(rng, (batch, n)), 0.95) for _ in range(draws // batch)])
    return float(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean())


@pytest.mark.more
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_means_of_100_are_covered(name: str) -> None:
    assert 0.94 <= coverage(name, 100, DRAWS) <= 0.96


@pytest.mark.more
@pytest.mark.parametrize(("n", "stated"), [(8, 0.89), (16, 0.92), (30, 0.93)])
def test_means_of_few_are_covered_less_as_the_docstring_says(n: int, stated: float) -> None:
    assert coverage("normal", n, 2_000) == pytest.approx(stated, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [100, 300, 1000])
def test_means_of_100_and_more_are_covered_in_40_000_draws(name: str, n: int) -> None:
    assert 0.94 <= coverage(name, n, 40_000, seed=1) <= 0.96
