"""The account of an audited round, counted by the batches that it feeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.types import Batch
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.gaussian import Gaussian
from gradveil.dp import epsilon
from gradveil.dp.audited_round import DELTA, account, round_accounts, uses_of

PRIVATE = Batch(torch.arange(10.0).reshape(1, 10, 1, 1, 1), torch.zeros(1, 10, 1))
SCENE = Scenario(name="scene", model=nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1)), private=PRIVATE, names=("a",))


@pytest.fixture
def library() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


@pytest.mark.parametrize(("steps", "size"), [(1, None), (3, None), (1, 4), (3, 4), (7, 4), (5, 30), (6, 5)])
def test_uses_are_those_of_the_picture_that_is_fed_most(steps: int, size: int | None) -> None:
    training = LocalTraining(steps=steps, batch_size=size)
    fed: Counter[float] = Counter()
    for batch in training.batches(Batch(*(x[0] for x in PRIVATE))):
        fed.update(batch.images.flatten().tolist())
    assert uses_of(replace(SCENE, training=training)) == max(fed.values())


@pytest.mark.usefixtures("library")
def test_by_the_accountant_without_sampling() -> None:
    rounds = replace(SCENE, training=LocalTraining(steps=2), threat=ThreatModel(rounds=3))
    for defense, noise in ((Dpsgd(noise=4.0), 4.0), (FedCdp(noise=4.0), 4.0 / 2**0.5)):
        alone, three = (epsilon(noise=noise, sampling_rate=1.0, rounds=n, delta=DELTA) for n in (1, 6))
        assert account(SCENE, defense)["said"] == f"epsilon {alone.value:.4g}"
        assert account(rounds, defense)["said"] == f"epsilon {three.value:.4g}"
        assert "this round alone" in account(SCENE, defense)["of"]
        assert "these 3 rounds alone" in account(rounds, defense)["of"]
    assert account(replace(SCENE, chosen=True), Dpsgd())["of"].startswith("this round alone")
    assert account(SCENE, Dpsgd(noise=0.5))["of"].startswith("at most 13.8 % identified among 1,001; this round alone")


@pytest.mark.usefixtures("library")
def test_only_noise_that_can_be_accounted_for_is_told_of() -> None:
    assert round_accounts((SCENE,), {"none": Gaussian()}) == {}
    found = round_accounts((SCENE,), {"none": Gaussian(), "dp": Dpsgd(), "by-ratio": Dpsgd(snr=0.0)})
    assert set(found["scene"]) == {"dp", "by-ratio"}
    assert found["scene"]["by-ratio"]["said"] == "not accounted"
    assert "snr" in found["scene"]["by-ratio"]["of"]
