"""Defenses of NVFlare and Flower under their names: what theirs send of an update, ours send."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from stored.make_nvflare import CHOICES, PERCENTILES, percentile, svt, update

import gradveil
from gradveil.core.errors import ConfigError
from gradveil.core.law import Kept, Laplace, Normal, Round, Same
from gradveil.core.seeds import Seed
from gradveil.defenses.clip import Clip
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.local_dp import LocalDp
from gradveil.defenses.percentile import Percentile, percentile_of
from gradveil.defenses.stack import Stack
from gradveil.defenses.svt import Svt, draw_passes

STORED = json.loads((Path(__file__).parent / "stored" / "nvflare.json").read_text())
PLAIN = {name: torch.tensor(values) for name, values in update().items()}
RUNS = 1500
CHANCE = 1e-5  # that a test of shares fails though they are equal


def floats(options: dict[str, Any]) -> dict[str, Any]:
    """Shapes and types are checked in tests: 10 is no float there."""
    return {key: value if key == "steps" else float(value) for key, value in options.items()}


def rng(number: int = 0) -> torch.Generator:
    return Seed(0).at(number).rng()


# NVFlare's PercentilePrivacy


@pytest.mark.parametrize("case", STORED["percentile"], ids=lambda case: f"{case['options']['percentile']:g}")
def test_percentile_sends_what_nvflare_sends_to_the_last_bit(case: dict[str, Any]) -> None:
    sent = Percentile(**floats(case["options"])).update(PLAIN, rng())
    assert set(sent) == set(case["sent"])
    for name, values in case["sent"].items():
        assert torch.equal(sent[name], torch.tensor(values))


def test_the_stored_cases_show_every_part_of_the_filter() -> None:
    """Else the test above holds of another filter too."""
    assert tuple(case["options"] for case in STORED["percentile"]) == PERCENTILES
    sent = [(np.abs(case["sent"]["a"]), case["options"]) for case in STORED["percentile"]]
    assert sum(bool((values == 0).any()) for values, _ in sent) >= 3
    assert sum(bool(np.isclose(values, given["gamma"] * given["steps"]).any()) for values, given in sent) >= 3


@pytest.mark.parametrize("case", PERCENTILES, ids=lambda case: f"{case['percentile']:g}")
def test_percentile_is_that_of_the_installed_nvflare(case: dict[str, Any]) -> None:
    pytest.importorskip("nvflare")
    stored = next(one for one in STORED["percentile"] if one["options"] == case)
    assert percentile(case) == stored


@pytest.mark.parametrize("percent", [0.0, 7.3, 50.0, 99.0, 100.0])
@pytest.mark.parametrize("size", [1, 2, 31, 101])
def test_a_percentile_is_that_of_numpy(percent: float, size: int) -> None:
    numbers = torch.rand(size, generator=rng(size), dtype=torch.float64)
    assert float(percentile_of(numbers, percent)) == pytest.approx(np.percentile(numbers.numpy(), percent), rel=1e-14)


def test_who_knows_percentile_has_no_slope_where_the_cut_is_reached_and_one_where_it_is_not() -> None:
    defense = Percentile(percentile=25.0, gamma=0.5)
    truth = {"w": torch.tensor([2.0, -0.4, 0.1, -3.0, 0.3])}
    sent = defense.update(truth, rng())
    assert torch.equal(sent["w"], torch.tensor([0.5, -0.4, 0.0, -0.5, 0.3]))
    surrogate = defense.surrogate(sent)
    assert torch.allclose(surrogate.update(truth, rng())["w"], sent["w"]), "the truth explains all that was sent"
    other = {"w": torch.tensor([-2.0, 5.0, 9.0, -0.1, 0.3])}
    assert torch.equal(surrogate.update(other, rng())["w"], torch.tensor([-2.0, 5.0, 0.0, -0.1, 0.3]))


# NVFlare's SVTPrivacy


def runs_of(options: dict[str, Any]) -> np.ndarray:
    """[run, number], without the single number, which passes as it is."""
    found = [Svt(**options).update(PLAIN, rng(number)) for number in range(RUNS)]
    assert all(torch.equal(sent["s"], PLAIN["s"]) for sent in found)
    return np.stack([np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()]) for sent in found]).astype(float)


@pytest.mark.parametrize("case", STORED["svt"], ids=range(len(STORED["svt"])))
def test_svt_sends_what_nvflare_sends_in_distribution(case: dict[str, Any]) -> None:
    """How often each number is sent, how many are, and what."""
    rows, theirs = runs_of(case["options"]), STORED["runs"]
    sent, stored = (rows != 0).mean(0), np.array(case["sent"])
    share = (sent * RUNS + stored * theirs) / (RUNS + theirs)
    spread = np.sqrt(share * (1 - share) * (1 / RUNS + 1 / theirs)) + 1e-4
    assert np.abs((sent - stored) / spread).max() < norm.isf(CHANCE / 2 / len(sent))
    count, told = (rows != 0).sum(1), case["count"]
    error = told["deviation"] * math.sqrt(1 / RUNS + 1 / theirs)
    assert abs(count.mean() - told["mean"]) < norm.isf(CHANCE / 2) * error
    values = rows[rows != 0]
    for quantile, level in zip(case["values"], STORED["shares"], strict=True):
        assert (values <= quantile).mean() == pytest.approx(level, abs=0.02)


def test_the_stored_choices_are_those_of_every_option() -> None:
    assert [case["options"] for case in STORED["svt"]] == list(CHOICES)
    shown = {key for case in CHOICES for key in case}
    assert shown >= {
        "fraction",
        "epsilon",
        "noise_var",
        "gamma",
        "tau",
        "replace",
        "epsilon_threshold",
        "epsilon_query",
    }


@pytest.mark.more
def test_svt_is_that_of_the_installed_nvflare() -> None:
    pytest.importorskip("nvflare")
    found, stored = svt(dict(CHOICES[1])), STORED["svt"][1]
    assert np.allclose(found["sent"], stored["sent"], atol=0.05)
    assert np.allclose(found["values"], stored["values"], rtol=0.1, atol=2e-3)


def test_a_pass_is_geometric() -> None:
    for short, chance in ((0.0, 0.5), (2.0, 0.5 * math.exp(-2)), (-1.0, 1 - 0.5 * math.exp(-1))):
        passes = draw_passes(torch.full((20_000,), short, dtype=torch.float64), rng())
        assert torch.equal(passes, passes.round())
        assert float((passes == 1).double().mean()) == pytest.approx(chance, abs=0.015)
        assert float(passes.mean()) == pytest.approx(1 / chance, rel=0.04)


def test_a_threshold_that_nothing_reaches_ends_all_the_same() -> None:
    """NVFlare's loop goes on for as long as it takes: with this threshold for good."""
    far = Svt(gamma=1e-3, tau=10.0, epsilon=1e6, fraction=0.1, replace=False).update(PLAIN, rng())
    assert sum(int((u != 0).sum()) for u in far.values()) in (23, 24, 25)


def test_svt_counts_the_numbers_and_ours_is_an_estimate() -> None:
    defense = Svt(gamma=0.5, noise_var=2.0, steps=3)
    assert defense.law(Round()) == Kept(Laplace(scale=1.5), pairwise=True)
    assert not Kept(Laplace(scale=1.5)).exact
    cut = defense.quiet().update({"w": torch.tensor([4.0, -0.3, -9.0])}, rng())
    assert torch.equal(cut["w"], torch.tensor([1.5, -0.3, -1.5]))


def test_who_knows_svt_has_a_slope_everywhere_that_was_sent() -> None:
    seen = {"w": torch.tensor([0.0, 1.0, -2.0])}
    surrogate = Svt(gamma=1e-5).surrogate(seen)
    dummy = torch.tensor([3.0, 0.2, -0.4], requires_grad=True)
    shown = surrogate.update({"w": dummy}, rng())["w"]
    (slope,) = torch.autograd.grad(shown.sum(), dummy)
    assert shown[0] == 0
    assert (slope[1:] > 1e-7).all()


# Flower's LocalDpMod: beside Flower's own in tests/flower/test_local_dp.py


def test_local_dp_is_clip_and_gaussian_and_has_their_law_and_certificate() -> None:
    defense = LocalDp(clipping_norm=2.0, sensitivity=2.0, epsilon=5.0, delta=1e-3)
    pair = Stack((Clip(clip=2.0), Gaussian(scale=defense.deviation)))
    assert all(torch.equal(u, pair.update(PLAIN, rng())[name]) for name, u in defense.update(PLAIN, rng()).items())
    assert defense.law(Round()) == Normal(deviation=defense.deviation) == pair.law(Round())
    assert LocalDp(sensitivity=0.0).law(Round()) == Same()
    found = gradveil.certificate(defense)
    assert found.at_most == gradveil.certificate(pair).at_most
    assert (found.kind, found.unit, found.sigma) == ("gaussian", "client", pytest.approx(defense.deviation / 2))
    assert found.at_most < 0.9


@pytest.mark.parametrize(
    ("defense", "options", "key"),
    [
        (Percentile, {"percentile": 101.0}, "percentile"), (Percentile, {"gamma": 0.0}, "gamma"),
        (Percentile, {"steps": 0}, "steps"), (Svt, {"fraction": 0.0}, "fraction"), (Svt, {"epsilon": -1.0}, "epsilon"),
        (Svt, {"noise_var": math.nan}, "noise_var"), (Svt, {"tau": math.inf}, "tau"), (Svt, {"steps": 0}, "steps"),
        (Svt, {"epsilon": 1.0, "epsilon_query": 1.0}, "epsilon_query"),
        (Svt, {"epsilon": 1.0, "epsilon_query": 0.5, "epsilon_threshold": 0.6}, "epsilon_threshold"),
        (LocalDp, {"clipping_norm": 0.0}, "clipping_norm"), (LocalDp, {"epsilon": 0.0}, "epsilon"),
        (LocalDp, {"sensitivity": -1.0}, "sensitivity"), (LocalDp, {"delta": 1.0}, "delta"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(defense: Any, options: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        defense(**options)
