"""Privacy budgets against accountants written here: a closed form at whole orders, the exact Gaussian, integration."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from gradveil.core.errors import ConfigError
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.dp import Epsilon, certify_gaussian, epsilon
from gradveil.dp.accountant import epsilon_of

CASES = [(1.1, 0.01, 1000, 1e-5), (0.8, 0.05, 100, 1e-5), (2.0, 0.1, 200, 1e-6), (4.0, 1.0, 50, 1e-5)]


@pytest.fixture
def library() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


def renyi_at_whole_orders(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Mironov et al., 2019, section 3.3, and the conversion of Canonne et al., 2020: whole orders only."""
    best = math.inf
    for order in range(2, 513):
        k = np.arange(order + 1) if rate < 1 else np.array([order])
        choose = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        chance = k * math.log(rate) + (order - k) * (math.log1p(-rate) if rate < 1 else 0.0)
        renyi = rounds * logsumexp(choose + chance + (k * k - k) / (2 * noise**2)) / (order - 1)
        spent = renyi + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        best = min(best, spent)
    return max(best, 0.0)


def exact_gaussian(noise: float, rounds: int, delta: float) -> float:
    """Balle and Wang, 2018, theorem 8; rounds without sampling are one Gaussian of more reach."""
    mu = math.sqrt(rounds) / noise

    def too_likely(eps: float) -> float:
        return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta

    return brentq(too_likely, 0, 200, xtol=1e-10)  # type: ignore[return-value]


def one_sampled_round(noise: float, rate: float, delta: float) -> float:
    """The hockey-stick divergence of both directions by integration."""

    def with_it(x: float) -> float:
        return (1 - rate) * norm.pdf(x, 0, noise) + rate * norm.pdf(x, 1, noise)

    def without(x: float) -> float:
        return norm.pdf(x, 0, noise)

    def above(eps: float, p, q) -> float:
        area, _ = quad(lambda x: max(p(x) - math.exp(eps) * q(x), 0.0), -15 * noise, 15 * noise + 1, limit=400)
        return area

    def too_likely(eps: float) -> float:
        return max(above(eps, with_it, without), above(eps, without, with_it)) - delta

    return brentq(too_likely, 0, 20, xtol=1e-8)  # type: ignore[return-value]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("case", CASES)
def test_rdp_against_the_closed_form(case: tuple[float, float, int, float]) -> None:
    noise, rate, rounds, delta = case
    got = epsilon(noise=noise, sampling_rate=rate, rounds=rounds, delta=delta).value
    reference = renyi_at_whole_orders(noise, rate, rounds, delta)
    assert got <= reference + 1e-9  # it may also choose among broken orders
    assert got == pytest.approx(reference, rel=0.02)


@pytest.mark.usefixtures("library")
def test_pld_against_the_exact_gaussian() -> None:
    for noise, rounds in [(1.0, 1), (4.0, 50), (20.0, 300)]:
        got = epsilon(noise=noise, sampling_rate=1.0, rounds=rounds, delta=1e-5, accountant="pld").value
        assert got == pytest.approx(exact_gaussian(noise, rounds, 1e-5), rel=1e-3)


@pytest.mark.usefixtures("library")
def test_pld_against_integration_for_one_sampled_round() -> None:
    for noise, rate in [(0.8, 0.2), (1.5, 0.5)]:
        got = epsilon(noise=noise, sampling_rate=rate, rounds=1, delta=1e-3, accountant="pld").value
        assert got == pytest.approx(one_sampled_round(noise, rate, 1e-3), rel=2e-3)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("case", CASES)
def test_pld_is_never_above_rdp_and_prv_is_its_other_name(case: tuple[float, float, int, float]) -> None:
    noise, rate, rounds, delta = case
    given = {"noise": noise, "sampling_rate": rate, "rounds": rounds, "delta": delta}
    tight = epsilon(**given, accountant="pld")  # type: ignore[arg-type]
    assert tight == epsilon(**given, accountant="prv")  # type: ignore[arg-type]
    assert tight.accountant == "pld"
    assert 0 < tight.value <= epsilon(**given).value  # type: ignore[arg-type]


@pytest.mark.usefixtures("library")
def test_it_says_what_it_means_for_pictures() -> None:
    tight, loose = (epsilon(noise=n, sampling_rate=1.0, rounds=1, delta=1e-5) for n in (4.0, 0.5))
    assert loose.value > 10
    assert loose.identified == certify_gaussian(sigma=0.5).at_most
    assert str(loose).endswith(", at most 13.8 % identified among 1,001")
    assert str(tight).endswith(", at most 0.3 % identified among 1,001")
    assert "added or removed" in str(tight)


@pytest.mark.usefixtures("library")
def test_what_an_epsilon_of_thirteen_means_for_pictures() -> None:
    """It rules out 89 % of the identifications, which the smaller accountant shows and RDP shows in part."""
    given = {"noise": 0.5, "sampling_rate": 0.01, "rounds": 1000, "delta": 1e-5}
    tight, renyi = epsilon(**given, accountant="pld"), epsilon(**given)  # type: ignore[arg-type]
    assert tight.value == pytest.approx(13.4, abs=0.05)
    assert tight.identified == pytest.approx(0.110, abs=5e-4)
    assert tight.identified < renyi.identified < 0.3


def test_without_noise_there_is_no_budget_and_no_library_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    got = epsilon(noise=0.0, sampling_rate=0.1, rounds=1, delta=1e-5)
    assert got == Epsilon(value=math.inf, delta=1e-5, accountant="rdp", identified=1.0)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"gradveil\[dp\]"):
        epsilon(noise=1.0, sampling_rate=0.1, rounds=1, delta=1e-5)


@pytest.mark.usefixtures("library")
def test_of_a_defense() -> None:
    shared = {"sampling_rate": 0.01, "delta": 1e-5}
    alone = epsilon(noise=1.1, rounds=20, **shared)
    assert epsilon_of(Dpsgd(noise=1.1), layers=4, steps=20, **shared) == alone
    assert epsilon_of(FedCdp(noise=2.2), layers=4, steps=20, **shared) == alone


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise": -1.0},
        {"noise": math.nan},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
        {"rounds": 0},
        {"delta": 0.0},
        {"delta": 1.0},
        {"accountant": "moments"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict) -> None:
    given = {"noise": 1.0, "sampling_rate": 0.1, "rounds": 1, "delta": 1e-5} | wrong
    with pytest.raises(ConfigError, match=str(next(iter(wrong)))):
        epsilon(**given)  # type: ignore[arg-type]
