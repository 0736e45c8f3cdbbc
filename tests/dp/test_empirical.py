"""The epsilon that hits show, against mechanisms whose epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_least
from gradveil.dp import certify_gaussian, empirical_epsilon

MANY = 10**9  # the interval is a point


@pytest.mark.parametrize("candidates", [2, 11, 1001])
@pytest.mark.parametrize("eps", [0.1, 1.0, 5.0])
def test_randomized_response_shows_its_epsilon(eps: float, candidates: int) -> None:
    """It names the true one with e^eps / (e^eps + K - 1), the most that pure eps allows."""
    right = math.exp(eps) / (math.exp(eps) + candidates - 1)
    assert empirical_epsilon(round(right * MANY), MANY, candidates) == pytest.approx(eps, abs=0.02)


@pytest.mark.parametrize("candidates", [2, 101])
def test_what_is_shown_is_rarely_above_what_is_true(candidates: int) -> None:
    eps, rng = 1.5, np.random.default_rng(3)
    right = math.exp(eps) / (math.exp(eps) + candidates - 1)
    above = sum(empirical_epsilon(int(rng.binomial(200, right)), 200, candidates) > eps for _ in range(2000))
    assert above / 2000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_with_and_without_a_picture_less_is_shown() -> None:
    """With p = 0.5 of 1,001: e^eps kappa >= p. With hardly a miss the misses show more than the hits."""
    half, most = MANY // 2, MANY - 1000
    assert empirical_epsilon(half, MANY, 1001, neighbors="add-remove") == pytest.approx(math.log(500.5), abs=1e-3)
    assert empirical_epsilon(half, MANY, 1001) == pytest.approx(math.log(1000), abs=1e-3)
    by_misses = math.log((1 - 1 / 1001) / (1 - at_least(most, MANY)))
    assert empirical_epsilon(most, MANY, 1001, neighbors="add-remove") == pytest.approx(by_misses)
    assert empirical_epsilon(half, MANY, 1001, delta=0.1) < empirical_epsilon(half, MANY, 1001)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_a_certificate_is_not_refuted_by_what_it_allows(sigma: float) -> None:
    """The account of normal noise, at its own delta, by the formula of Balle and Wang (2018)."""
    from scipy.stats import norm

    hits = int(certify_gaussian(sigma=sigma).at_most * MANY)
    for eps in (0.5, 2.0, 5.0):
        mu = 1 / sigma
        delta = norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        assert empirical_epsilon(hits, MANY, 1001, delta=float(delta), neighbors="add-remove") <= eps


def test_guessing_shows_nothing() -> None:
    assert empirical_epsilon(0, 100, 1001) == 0.0
    assert empirical_epsilon(50, 100, 2) == 0.0
    assert empirical_epsilon(1, 1000, 1001, neighbors="add-remove") == 0.0
    assert 0 < empirical_epsilon(5, 100, 1001) < empirical_epsilon(50, 100, 1001) < math.inf
    assert empirical_epsilon(100, 100, 1001) < math.inf
    assert empirical_epsilon(50, 100, 1001, confidence=0.99) < empirical_epsilon(50, 100, 1001)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"hits": 6}, "hits"),
        ({"hits": -1}, "hits"),
        ({"of": 0, "hits": 0}, "of"),
        ({"candidates": 1}, "candidates"),
        ({"confidence": 1.0}, "confidence"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: must be "):
        empirical_epsilon(**{"hits": 1, "of": 5, "candidates": 10, **wrong})
