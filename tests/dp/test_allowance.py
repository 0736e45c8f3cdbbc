"""A privacy budget that is kept: epsilon in closed form against an accountant, and the count of releases."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.dp import epsilon
from gradveil.dp.allowance import (
    Allowance,
    allowance_of,
    delta_of_gaussian,
    epsilon_of_gaussian,
    releases_in,
)
from gradveil.train.privacy import allowance_for, find_stop, releases_after
from gradveil.train.settings import Federation

ONE = Allowance(epsilon_at_most=8.0, delta=1e-5, unit="example", sigma=2.0)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("eps", [0.0, 0.3, 2.0])
def test_delta_is_the_integral_that_defines_it(mu: float, eps: float) -> None:
    """Of max(0, p - e^eps q) for normal densities that are mu apart."""

    def excess(x: float) -> float:
        return max(0.0, float(norm.pdf(x, mu) - math.exp(eps) * norm.pdf(x)))

    border = eps / mu + mu / 2
    expected, _ = quad(excess, border, border + 12 + mu, epsabs=1e-13)
    assert delta_of_gaussian(eps, mu) == pytest.approx(expected, rel=1e-6, abs=1e-11)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (1.0, 20), (5.0, 100)])
def test_epsilon_is_that_of_the_accountant(noise: float, rounds: int) -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")
    ours = epsilon_of_gaussian(1e-5, math.sqrt(rounds) / noise)
    assert ours == pytest.approx(
        epsilon(noise=noise, sampling_rate=1.0, rounds=rounds, delta=1e-5, accountant="pld").value, rel=1e-3
    )
    assert ours <= epsilon(noise=noise, sampling_rate=1.0, rounds=rounds, delta=1e-5, accountant="rdp").value


@pytest.mark.parametrize("most", [0.5, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("sigma", [0.3, 2.0, 50.0])
def test_one_release_more_is_too_much(most: float, sigma: float) -> None:
    one = replace(ONE, epsilon_at_most=most, sigma=sigma)
    count = one.releases
    assert one.epsilon_after(count) <= most < one.epsilon_after(count + 1)
    assert f"above {most:g}" in one.refusal(count + 1)


def test_what_is_said_to_be_too_much_shows_that_it_is() -> None:
    one = replace(ONE, epsilon_at_most=epsilon_of_gaussian(1e-5, 0.5) - 1e-9)
    said = float(one.refusal(1).split("epsilon to ")[1].split(" ")[0])
    assert said > one.epsilon_at_most


@pytest.mark.parametrize(
    ("defense", "unit", "sigma"),
    [
        ("dpsgd:noise=1.5", "example", 1.5), ("fedcdp:noise=3", "example", 1.5),
        ("local-dp:clipping_norm=2,sensitivity=2,epsilon=1", "client", math.sqrt(2 * math.log(1.25e5))),
        ('stack:of=[{name="clip",clip=0.5},{name="gaussian",scale=2.0}]', "client", 4.0),
    ],
)  # fmt: skip
def test_the_noise_that_counts(defense: str, unit: str, sigma: float) -> None:
    found = allowance_of(parse_defense(defense), 4, 8.0, 1e-5)
    assert (found.unit, found.sigma) == (unit, pytest.approx(sigma))


@pytest.mark.parametrize("defense", ["none", "prune", "gaussian:scale=0.5", "dpsgd:snr=3", "dpsgd:noise=0", "svt"])
def test_a_defense_without_an_epsilon_is_refused(defense: str) -> None:
    with pytest.raises(ConfigError, match=r"^epsilon_at_most: no epsilon can be kept: "):
        allowance_of(parse_defense(defense), 1, 8.0, 1e-5)


@pytest.mark.parametrize("most", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_no_epsilon_is_refused(most: float) -> None:
    with pytest.raises(ConfigError, match="epsilon_at_most: must be above 0"):
        allowance_of(parse_defense("dpsgd"), 1, most, 1e-5)


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(), LocalTraining(steps=3), LocalTraining(steps=5, batch_size=4),
        LocalTraining(epochs=3, batch_size=4), LocalTraining(epochs=2, batch_size=3),
        LocalTraining(steps=2, batch_size=99),
    ],
)  # fmt: skip
def test_releases_in_a_round_are_those_that_are_played(training: LocalTraining) -> None:
    pictures = 10
    data = Batch(torch.arange(pictures).reshape(-1, 1, 1, 1).float(), torch.zeros(pictures, 2))
    fed = torch.zeros(pictures)
    for batch in training.for_examples(pictures).batches(data):
        fed[batch.images.flatten().long()] += 1
    assert releases_in(training, pictures) == int(fed.max())


SIZES = (10, 3, 17)
FEDERATIONS = [
    Federation(clients=3, rounds=40, batch_size=4, local_epochs=2),
    Federation(clients=3, rounds=60, per_round=1, batch_size=4, seed=3),
    Federation(clients=3, rounds=90, batch_size=4, method="fedsgd"),
]


@pytest.mark.parametrize("federation", FEDERATIONS)
@pytest.mark.parametrize("unit", ["example", "client"])
def test_the_stop_is_before_the_first_round_that_is_too_much(federation: Federation, unit: str) -> None:
    one = replace(ONE, sigma=6.0, epsilon_at_most=2.0, unit=unit)  # type: ignore[arg-type]
    stop = find_stop(federation, SIZES, one)
    assert stop is not None
    spent = [releases_after(number, federation, SIZES, one) for number in (stop.round, stop.round + 1)]
    assert one.epsilon_after(spent[0]) <= 2.0 < one.epsilon_after(spent[1])
    assert str(stop).startswith(f"round {stop.round + 1} is refused: it would raise epsilon to ")
    assert find_stop(replace(federation, rounds=stop.round), SIZES, one) is None


def test_a_first_round_that_is_too_much_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"^epsilon_at_most: round 1 is refused: it would raise epsilon to .*; raise it"
    ):
        find_stop(FEDERATIONS[0], SIZES, replace(ONE, sigma=0.1))


CLIENT = 'stack:of=[{name="clip",clip=1.0},{name="gaussian",scale=4.0}]'


def test_what_leaves_beside_the_noise_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Flatten())
    defense = parse_defense(CLIENT)
    for batchnorm in ("eval", "batch"):
        assert allowance_for(model, defense, Federation(batchnorm=batchnorm), 8.0, None) is not None
    with pytest.raises(ConfigError, match="epsilon_at_most: BatchNorm statistics leave the clients without noise"):
        allowance_for(model, defense, Federation(batchnorm="batch-shared"), 8.0, None)
    with pytest.raises(ConfigError, match="error_feedback: the next update takes the noise of the last one back"):
        allowance_for(model, defense, Federation(error_feedback=True), 8.0, None)
