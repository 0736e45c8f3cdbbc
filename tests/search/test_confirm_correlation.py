"""Coefficients against scipy's, and intervals that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gradveil.search.correlation import pearson, spearman


def pairs(count: int, strength: float, seed: int = 0) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count)
    return x.tolist(), (strength * x + np.sqrt(1 - strength**2) * rng.standard_normal(count)).tolist()


def test_pearson_and_its_fisher_interval_are_scipy_s() -> None:
    x, y = pairs(30, 0.6)
    wanted = stats.pearsonr(x, y)
    ends = wanted.confidence_interval(0.95)
    found = pearson(x, y)
    assert found is not None
    assert found.value == pytest.approx(wanted.statistic, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=1e-9)


def test_spearman_is_scipy_s_with_ties() -> None:
    x, y = [1.0, 2.0, 2.0, 4.0, 5.0, 0.0], [3.0, 1.0, 4.0, 4.0, 9.0, 2.0]
    found = spearman(x, y)
    assert found is not None
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("kind", [pearson, spearman])
def test_the_interval_covers(kind) -> None:
    """Of 200 samples without any relation about 5 % are mistaken for one; the two intervals together for fewer."""
    wrong = sum((found := kind(*pairs(12, 0.0, seed))) is not None and found.is_positive for seed in range(100))
    assert wrong <= 8
    right = sum((found := kind(*pairs(40, 0.8, seed))) is not None and found.is_positive for seed in range(20))
    assert right >= 19


def test_the_order_of_policies_does_not_matter_to_the_coefficient_and_too_few_have_none() -> None:
    x, y = pairs(9, 0.5)
    there, back = pearson(x, y), pearson(x[::-1], y[::-1])
    assert there is not None
    assert back is not None
    assert there.value == pytest.approx(back.value)
    assert pearson(x[:3], y[:3]) is None
    assert pearson([1.0] * 5, y[:5]) is None
    with pytest.raises(ValueError, match="as many"):
        pearson(x, y[:-1])
