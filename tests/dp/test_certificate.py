"""Certificates against theorems, against numbers of high precision, and against the best attacker that there is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from gradveil.core.errors import ConfigError
from gradveil.dp import Certificate, certify_by_account, certify_gaussian, chance
from gradveil.dp.trade_off import identified_by_account, identified_by_gaussian, show_bound

KAPPA = 1 / 1001
PUBLISHED = {0.2: 0.972, 0.25: 0.818, 0.3: 0.596, 0.4: 0.277, 0.5: 0.138, 1.0: 0.018}
REACHED = {0.2: 0.949, 0.25: 0.771, 0.3: 0.540, 0.4: 0.247, 0.5: 0.119, 1.0: 0.015}
DRAWS = 4000


@pytest.fixture
def library() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("sigma", "published"), PUBLISHED.items())
def test_both_forms_agree(sigma: float, published: float) -> None:
    closed, by_account = certify_gaussian(sigma=sigma), certify_by_account(sigma=sigma)
    assert closed.at_most == pytest.approx(published, abs=5e-4)
    assert by_account.at_most == pytest.approx(closed.at_most, abs=1e-4)
    assert (closed.kind, by_account.kind) == ("gaussian", "pld")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("kappa", [1e-6, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("sigma", [0.12, 1.0, 8.0])
def test_both_forms_agree_for_any_chance(sigma: float, kappa: float) -> None:
    """Where guessing is easy the best epsilon is below zero."""
    closed, by_account = (make(sigma=sigma, kappa=kappa) for make in (certify_gaussian, certify_by_account))
    assert by_account.at_most == pytest.approx(closed.at_most, abs=1e-4)


@pytest.mark.usefixtures("library")
def test_dp_sgd_with_sampling() -> None:
    got = certify_by_account(sigma=0.5, sampling_rate=0.01, releases=1000)
    assert got.at_most == pytest.approx(0.110, abs=5e-4)
    assert got.mu is None
    assert not any("who takes part" in line for line in got.does_not_cover)
    assert any("who takes part" in line for line in certify_gaussian(sigma=0.5).does_not_cover)


def by_high_precision(kappa: float, mu: float) -> float:
    with mpmath.workdps(60):
        start = mpmath.findroot(lambda x: mpmath.log(mpmath.ncdf(x)) - mpmath.log(mpmath.mpf(kappa)), -5)
        return float(mpmath.ncdf(start + mpmath.mpf(mu)))


@pytest.mark.parametrize("kappa", [1e-300, 1e-30, 1e-12, 1e-6, KAPPA, 0.3])
@pytest.mark.parametrize("mu", [1e-3, 0.5, 2.0, 7.0])
def test_a_tiny_chance_keeps_its_digits(kappa: float, mu: float) -> None:
    assert identified_by_gaussian(kappa, mu) == pytest.approx(by_high_precision(kappa, mu), rel=1e-11)


def test_it_grows_with_chance_and_releases_and_falls_with_noise() -> None:
    chances = [identified_by_gaussian(kappa, 1.0) for kappa in (1e-9, 1e-3, 0.1, 0.9)]
    noises = [certify_gaussian(sigma=sigma).at_most for sigma in (8.0, 2.0, 1.0, 0.5, 0.2)]
    rounds = [certify_gaussian(sigma=4.0, releases=t).at_most for t in (1, 2, 10, 100)]
    for series in (chances, noises, rounds):
        assert all(a < b for a, b in pairwise(series))
    for sigma in (0.01, 1.0, 1e9):
        assert KAPPA <= certify_gaussian(sigma=sigma).at_most <= 1.0


@pytest.mark.usefixtures("library")
def test_many_releases_of_more_noise_are_one_of_less() -> None:
    for make in (certify_gaussian, certify_by_account):
        often, once = make(sigma=0.5 * 9**0.5, releases=9), make(sigma=0.5)
        assert often.at_most == pytest.approx(once.at_most, rel=1e-6)


def test_pictures_of_one_person_and_another_in_place_of_one() -> None:
    one = certify_gaussian(sigma=3.0)
    assert one.mu == pytest.approx(1 / 3)
    three, other = certify_gaussian(sigma=3.0, pictures=3), certify_gaussian(sigma=3.0, neighbors="replace-one")
    assert three.mu == pytest.approx(1.0)
    assert three.at_most == pytest.approx(certify_gaussian(sigma=1.0).at_most)
    assert other.mu == pytest.approx(2 / 3)
    assert "3 pictures of one person" in three.covers
    assert any("one person" in line for line in one.does_not_cover)
    assert not any("one person" in line for line in three.does_not_cover)


def rate_of_the_best_attacker(sigma: float, candidates: int, releases: int = 1) -> float:
    """Candidates move the update in directions of their own, each as far as it may; equal priors, so the likeliest is
    the best guess. The true one has what noise gives it and what it moved, the others what noise gives them."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(DRAWS // 500):
        scores = rng.normal(0, sigma / releases**0.5, (500, candidates))
        scores[:, 0] += 1.0
        hits += int((scores.argmax(1) == 0).sum())
    return hits / DRAWS


@pytest.mark.parametrize(("sigma", "reached"), REACHED.items())
def test_the_best_attacker_comes_near_and_never_above(sigma: float, reached: float) -> None:
    """Standard error of a rate of 4,000 draws: at most 0.008."""
    rate = rate_of_the_best_attacker(sigma, 1001)
    error = math.sqrt(reached * (1 - reached) / DRAWS)
    assert rate == pytest.approx(reached, abs=4 * 2**0.5 * error)  # the reference is of as many draws
    bound = certify_gaussian(sigma=sigma).at_most
    assert bound / 2 < rate < bound + 3 * error


@pytest.mark.parametrize("candidates", [2, 11, 101])
def test_the_best_attacker_of_several_releases(candidates: int) -> None:
    rate = rate_of_the_best_attacker(2.0, candidates, releases=4)
    bound = certify_gaussian(sigma=2.0, kappa=1 / candidates, releases=4).at_most
    assert rate < bound + 3 * math.sqrt(bound * (1 - bound) / DRAWS)


def test_any_epsilon_gives_a_bound_and_the_best_is_taken() -> None:
    """Randomized response of pure epsilon 2 among two: delta is 0 from 2 on and falls linearly in e^epsilon before."""
    right = math.exp(2) / (1 + math.exp(2))

    def delta_at(eps: float) -> float:
        return max(right - math.exp(eps) * (1 - right), 1 - math.exp(eps), 0.0)

    for kappa in (1e-3, 0.05):
        assert identified_by_account(kappa, delta_at) == pytest.approx(math.exp(2) * kappa, rel=1e-4)
    assert identified_by_account(0.5, delta_at) <= 1.0


def test_chance() -> None:
    assert chance(1001) == KAPPA
    assert chance(1001, attacks=3) == 3 * KAPPA
    assert chance(1001, top=5) == 5 * KAPPA
    assert chance(101, attacks=2, top=5) == 10 / 101


def test_without_noise_there_is_no_certificate() -> None:
    none = certify_gaussian(sigma=0.0)
    assert (none.at_most, none.kind, none.holds) == (1.0, "none", False)
    assert str(none).startswith("no certificate: there is no noise")
    assert none.at(0.5).at_most == 1.0
    assert none.to_json()["mu"] is None


def test_what_it_says_of_itself() -> None:
    one = certify_gaussian(sigma=0.5, releases=4, unit="client")
    assert one.advantage == one.at_most - KAPPA
    assert "all pictures of one client" in one.covers
    assert "4 noisy releases" in one.covers
    assert any("BatchNorm statistics" in line for line in one.does_not_cover)
    kept = one.to_json()
    assert [kept[key] for key in ("kind", "unit", "releases", "sigma", "mu")] == ["gaussian", "client", 4, 0.5, 4.0]
    assert (kept["at_most"], kept["kappa"], kept["said"]) == (one.at_most, KAPPA, str(one))
    other = one.at(0.01, event="recovered", condition="such pictures")
    assert other == replace(one, kappa=0.01, at_most=other.at_most, event="recovered", condition="such pictures")
    assert other.at_most == identified_by_gaussian(0.01, 4.0)
    assert "recovered (random guessing: 1 %), for such pictures; per client" in str(other)


def test_what_is_printed_is_rounded_up() -> None:
    for share in np.random.default_rng(0).random(500):
        printed = float(show_bound(share).removesuffix(" %"))
        assert share <= printed / 100 + 1e-12
        assert printed / 100 < share + 0.00101


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"sigma": math.nan}, "sigma"),
        ({"sigma": math.inf}, "sigma"),
        ({"kappa": 0.0}, "kappa"),
        ({"kappa": 1.0}, "kappa"),
        ({"releases": 0}, "releases"),
        ({"pictures": 0}, "pictures"),
        ({"neighbors": "next-door"}, "neighbors"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: must be ") as error:
        certify_gaussian(**{"sigma": 1.0, **wrong})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"candidates": 1}, "candidates"),
        ({"candidates": 5, "top": 5}, "candidates"),
        ({"candidates": 9, "attacks": 0}, "attacks"),
        ({"candidates": 9, "top": 0}, "top"),
    ],
)
def test_a_chance_that_makes_no_sense_is_refused(wrong: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: must be "):
        chance(**wrong)


def test_a_rate_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^sampling_rate: must be "):
        certify_by_account(sigma=1.0, sampling_rate=0.0)
    assert isinstance(certify_gaussian(sigma=1.0), Certificate)
