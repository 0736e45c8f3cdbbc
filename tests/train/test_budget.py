"""The account of a training: steps and rates counted by hand and by playing the rounds, epsilons by the accountant."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from local_scenes import pictures, plain_model
from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.oasis import Oasis
from gradveil.defenses.precode import Precode
from gradveil.defenses.soteria import Soteria
from gradveil.defenses.stack import Stack
from gradveil.dp import epsilon
from gradveil.dp.budget import DELTA, Budget, Exposure, budget_of, worst_candidates
from gradveil.train.client import pictures_of
from gradveil.train.clients import draw_clients
from gradveil.train.privacy import exposures
from gradveil.train.settings import Federation

FEDERATIONS = [
    Federation(clients=3, rounds=7, batch_size=4, local_epochs=2),
    Federation(clients=3, rounds=9, per_round=2, batch_size=4, method="fedprox"),
    Federation(clients=3, rounds=11, batch_size=4, method="fedsgd"),
    Federation(clients=3, rounds=13, per_round=1, batch_size=4, method="fedsgd", seed=5),
]
SIZES = (10, 3, 17)


@pytest.fixture
def library() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


def played(client: int, federation: Federation) -> tuple[int, int, int, Counter[int]]:
    """Rounds, steps, largest batch, and how often each picture was fed, by the code that feeds them."""
    name, count, steps, largest, fed = federation.names[client], SIZES[client], 0, 0, Counter[int]()
    mine = [number for number in range(1, federation.rounds + 1) if client in draw_clients(federation, number)]
    for number in mine:
        own = pictures_of(count, federation, name, number)
        data = Batch(own.reshape(-1, 1, 1, 1).float(), torch.zeros(len(own), 1))
        for batch in federation.local_training(len(own), 0.0).batches(data):
            steps, largest = steps + 1, max(largest, len(batch.images))
            fed.update(batch.images.flatten().long().tolist())
    return len(mine), steps, largest, fed


@pytest.mark.parametrize("federation", FEDERATIONS)
def test_what_is_counted_is_what_is_fed(federation: Federation) -> None:
    for one in exposures(SIZES, federation):
        client = federation.names.index(one.client)
        rounds, steps, largest, fed = played(client, federation)
        assert (one.rounds, one.steps, one.batch) == (rounds, steps, largest)
        assert one.rate == largest / SIZES[client]
        assert max(fed.values()) <= one.uses
        if federation.method != "fedsgd":
            assert set(fed.values()) == {one.uses}


def test_a_client_that_is_never_drawn_has_no_part() -> None:
    federation = Federation(clients=50, rounds=2, per_round=1)
    assert len(exposures([4] * 50, federation)) <= 2


def test_only_those_that_others_do_not_outdo_are_candidates() -> None:
    def one(steps: int, batch: int) -> Exposure:
        return Exposure(client=f"{steps}/{batch}", pictures=100, batch=batch, rounds=1, steps=steps, uses=1)

    found = worst_candidates([one(5, 10), one(9, 10), one(9, 5), one(2, 40), one(2, 39), one(1, 40)])
    assert [exposure.client for exposure in found] == ["9/10", "2/40"]


@pytest.mark.usefixtures("library")
def test_the_client_that_is_worst_off_counts() -> None:
    """fedavg, two epochs of 7 rounds: rates 4/10, 1 and 4/17 in 3, 1 and 5 steps an epoch."""
    budget = budget_of(Dpsgd(noise=6.0), plain_model(), exposures(SIZES, FEDERATIONS[0]))
    assert budget is not None
    pairs = {"client-0": (0.4, 42), "client-1": (1.0, 14), "client-2": (4 / 17, 70)}
    each = {c: epsilon(noise=6.0, sampling_rate=q, rounds=t, delta=DELTA).value for c, (q, t) in pairs.items()}
    worst = max(each, key=lambda client: each[client])
    assert budget.sampled is not None
    assert budget.sampled.exposure.client == worst
    assert budget.sampled.rdp == each[worst]
    rate, steps = pairs[worst]
    tight = epsilon(noise=6.0, sampling_rate=rate, rounds=steps, delta=DELTA, accountant="prv")
    assert budget.sampled.prv == tight.value
    assert budget.sampled.identified == tight.identified
    assert budget.as_json()["sampled"]["identified_at_most"] == tight.identified
    assert budget.dealt is not None
    dealt = epsilon(noise=6.0, sampling_rate=1.0, rounds=14, delta=DELTA)
    assert (budget.dealt.rdp, budget.dealt.identified) == (dealt.value, dealt.identified)


def rdp_of(defense: Defense, model: nn.Module | None = None) -> float:
    budget = budget_of(defense, model or plain_model(), exposures([8], Federation(clients=1, rounds=1, batch_size=8)))
    assert budget is not None
    assert budget.sampled is not None, budget.reason
    return budget.sampled.rdp


@pytest.mark.usefixtures("library")
def test_what_one_example_can_move_decides_what_the_noise_is_worth() -> None:
    def worth(noise: float) -> float:
        return epsilon(noise=noise, sampling_rate=1.0, rounds=1, delta=DELTA).value

    assert rdp_of(Dpsgd(noise=6.0)) == worth(6.0)
    assert rdp_of(FedCdp(noise=6.0)) == worth(6.0 / 2**0.5)  # a convolution and a linear layer
    assert rdp_of(Stack((Gaussian(), FedCdp(noise=6.0), Gaussian()))) == worth(6.0 / 2**0.5)
    assert rdp_of(Stack((Oasis(transforms="hflip"), Dpsgd(noise=6.0)))) == worth(3.0)  # a picture and its copy
    assert rdp_of(Stack((Soteria(), Dpsgd(noise=6.0)))) == worth(6.0)
    # the bottleneck's two layers come in addition, and the head stays one
    assert rdp_of(Stack((Precode(size=4), FedCdp(noise=6.0)))) == worth(6.0 / 4**0.5)
    assert rdp_of(Stack((Dpsgd(noise=6.0), FedCdp(noise=5.0)))) == worth(5.0 / 2**0.5)  # the outermost


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("defense", "why"),
    [
        (Stack((Mixup(), Dpsgd())), "mixup mixes pictures"),
        (Stack((Dpsgd(), Soteria())), "soteria looks at the pictures again after the noise"),
        (Dpsgd(snr=0.0), "no epsilon holds with snr"),
        (Stack((Oasis(), Dpsgd(snr=0.0))), "no epsilon holds with snr"),
    ],
)
def test_what_no_epsilon_covers_is_said(defense: Defense, why: str) -> None:
    budget = budget_of(defense, plain_model(), exposures([8], Federation(clients=1)))
    assert budget is not None
    assert budget.sampled is None
    assert str(budget).startswith("privacy: not accounted: ")
    assert why in str(budget)
    assert why in budget.as_json()["reason"]


@pytest.mark.parametrize("defense", [Defense(), Gaussian(), Stack(()), Soteria()])
def test_defenses_without_clipped_examples_have_none(defense: Defense) -> None:
    assert budget_of(defense, plain_model(), exposures([8], Federation(clients=1))) is None


def test_a_missing_library_is_told_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    budget = budget_of(Dpsgd(noise=1.2345), plain_model(), exposures([8], Federation(clients=1)))
    assert "not accounted: dp_accounting is not installed" in str(budget)
    assert "gradveil[dp]" in str(budget)


def line(noise: float, federation: Federation) -> tuple[str, Budget]:
    budget = budget_of(Dpsgd(noise=noise), plain_model(), exposures([8] * federation.clients, federation))
    assert budget is not None
    return str(budget), budget


@pytest.mark.usefixtures("library")
def test_it_says_what_it_means_for_pictures_and_far_above_prv_is_left_out() -> None:
    once = Federation(clients=1, rounds=1, batch_size=8)
    assert "by PRV, at most 0.2 % identified among 1,001 (" in line(6.0, once)[0]
    assert "by PRV, at most 59.6 % identified among 1,001 (" in line(0.3, once)[0]
    far, budget = line(0.05, once)
    assert "PRV left out above 50" in far
    assert budget.sampled is not None
    assert budget.sampled.prv is None
    without, none = line(0.0, once)
    assert "infinite" in without
    assert "at most 100 % identified among 1,001" in without
    assert none.as_json()["sampled"]["rdp"] is None
    assert none.sampled is not None
    assert math.isinf(none.sampled.rdp)


@pytest.mark.usefixtures("library")
def test_the_line_says_what_it_speaks_of() -> None:
    report, _ = line(6.0, Federation(clients=1, rounds=3, batch_size=2))
    assert "per example and not per client" in report
    assert "client-0 takes 2 of 8 pictures a step, sampling rate 0.25, 12 steps in 3 rounds" in report
    assert "Poisson" in report
    assert "an example is in up to 3 steps" in report
    assert "delta = 1e-05" in report
    whole, _ = line(6.0, Federation(clients=1, rounds=3, batch_size=8))
    assert whole.endswith("every step takes all pictures")


def test_a_delta_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="delta"):
        budget_of(Dpsgd(), plain_model(), exposures([8], Federation(clients=1)), delta=1.0)


def test_clients_without_pictures_are_nobody() -> None:
    federation = replace(FEDERATIONS[0], clients=2)
    assert [one.client for one in exposures([0, len(pictures().images)], federation)] == ["client-1"]
