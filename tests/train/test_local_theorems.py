"""What federated training must be equal to, checked in float64 against torch itself or against another way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from local_scenes import far, normalized_model, pictures, plain_model
from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses import DEFENSES
from gradveil.defenses.stack import stack
from gradveil.train.client import pictures_of
from gradveil.train.federated import train_federation
from gradveil.train.partition import partition
from gradveil.train.settings import Federation

DATA, JUDGED = pictures(), pictures(6, seed=1)


def trained(model: nn.Module, defense: Defense | None = None, how: dict[str, Any] | None = None, **settings: Any):
    federation = Federation(**{"clients": 3, "rounds": 4, "batch_size": 4, **settings})
    return train_federation(
        model, DATA, JUDGED, federation, defense or Defense(), precision="float64", evaluate_every=4, **(how or {})
    )


def by_torch(model: nn.Module, federation: Federation) -> nn.Module:
    """FedSGD by torch's own optimizer: a round is one batch, of all clients' pictures together."""
    model = copy.deepcopy(model).double()
    shares = partition(DATA.labels, federation)
    options: dict[str, Any] = {"momentum": federation.momentum, "weight_decay": federation.weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), lr=federation.rate, nesterov=federation.nesterov, **options)
    for round in range(1, federation.rounds + 1):
        named = zip(shares, federation.names, strict=True)
        at = torch.cat([s[pictures_of(len(s), federation, name, round)] for s, name in named])
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.images[at].double()), DATA.labels[at].double()).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_fedsgd_of_many_clients_is_one_large_batch(nesterov: bool, fused: bool) -> None:
    settings: dict[str, Any] = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.01, "rate": 0.3}
    got = trained(plain_model(), method="fedsgd", how={"fused": fused}, **settings)
    federation = Federation(clients=3, rounds=4, batch_size=4, method="fedsgd", **settings)
    assert far(got.model, by_torch(plain_model(), federation)) < 1e-12
    assert far(got.model, plain_model().double()) > 1e-3


def test_fedavg_of_one_client_with_one_step_is_sgd() -> None:
    settings: dict[str, Any] = {"clients": 1, "batch_size": 24, "rate": 0.3, "weight_decay": 0.01, "rounds": 1}
    got = trained(plain_model(), **settings)
    reference = copy.deepcopy(plain_model()).double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.3, weight_decay=0.01)
    F.cross_entropy(reference(DATA.images.double()), DATA.labels.double()).backward()
    optimizer.step()
    assert far(got.model, reference) < 1e-12


@pytest.mark.parametrize("nesterov", [False, True])
def test_local_steps_of_fedavg_are_those_of_torch(nesterov: bool) -> None:
    settings: dict[str, Any] = {"rate": 0.2, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.01}
    federation = Federation(clients=1, rounds=1, batch_size=5, local_epochs=2, **settings)
    got = trained(plain_model(), clients=1, rounds=1, batch_size=5, local_epochs=2, **settings)
    reference = copy.deepcopy(plain_model()).double()
    options = {"momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.01}
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.2, **options)
    share = partition(DATA.labels, federation)[0]
    at = share[pictures_of(24, federation, "client-0", 1)]
    for _ in range(2):
        for first in range(0, 24, 5):
            some = at[first : first + 5]
            optimizer.zero_grad()
            F.cross_entropy(reference(DATA.images[some].double()), DATA.labels[some].double()).backward()
            optimizer.step()
    assert far(got.model, reference) < 1e-12


def test_fedprox_without_pull_is_fedavg_and_with_a_strong_one_stays() -> None:
    plain = trained(plain_model(), local_epochs=3, rate=0.2)
    free = trained(plain_model(), local_epochs=3, rate=0.2, method="fedprox", proximal=0.0)
    held = trained(plain_model(), local_epochs=3, rate=0.2, method="fedprox", proximal=4.0)
    start = plain_model().double()
    assert far(plain.model, free.model) == 0
    assert far(held.model, start) < 0.7 * far(plain.model, start)


@pytest.mark.parametrize("method", ["fedsgd", "fedavg"])
def test_gossip_on_a_complete_graph_is_central(method: str) -> None:
    settings: dict[str, Any] = {"method": method, "momentum": 0.9, "batchnorm": "batch-shared"}
    central = trained(normalized_model(), **settings)
    gossip = trained(normalized_model(), topology="gossip", neighbors="complete", **settings)
    assert far(central.model, gossip.model) < 1e-12
    assert gossip.curve[-1].worst == gossip.curve[-1].accuracy == central.curve[-1].accuracy
    ring = trained(normalized_model(), topology="gossip", neighbors="ring", clients=5, **settings)
    assert ring.curve[-1].worst is not None
    assert ring.curve[-1].accuracy is not None


DEFENDED = {
    "none": lambda: DEFENSES["none"](),
    "ats": lambda: DEFENSES["ats"](policy="3-1-7+43-18-18"),
    "ats-augment": lambda: DEFENSES["ats"](policy="3-1-7", augment=True),
    "oasis": lambda: DEFENSES["oasis"](transforms="major"),
    "mixup": lambda: DEFENSES["mixup"](k=2),
    "stack": lambda: stack(of=[{"name": "ats"}, {"name": "oasis"}]),
}


@pytest.mark.parametrize("defense", DEFENDED)
@pytest.mark.parametrize("batchnorm", ["eval", "batch", "batch-shared"])
def test_one_pass_for_all_is_the_loop(defense: str, batchnorm: str) -> None:
    settings: dict[str, Any] = {"method": "fedsgd", "momentum": 0.9, "batchnorm": batchnorm, "augment": True}
    made = DEFENDED[defense]()
    one = trained(normalized_model(), made, how={"fused": True}, per_round=2, **settings)
    loop = trained(normalized_model(), made, how={"fused": False, "chunk": 1}, per_round=2, **settings)
    assert far(one.model, loop.model) < 1e-9
    assert [a.loss for a in one.curve] == pytest.approx([b.loss for b in loop.curve], abs=1e-9)
    assert not one.notes


@pytest.mark.parametrize(
    ("method", "defense"), [("fedsgd", "gaussian"), ("fedavg", "ats"), ("fedavg", "prune"), ("fedprox", "none")]
)
def test_stacked_clients_are_the_loop_in_stacks_of_any_size(method: str, defense: str) -> None:
    settings: dict[str, Any] = {"method": method, "batchnorm": "batch-shared", "local_epochs": 2, "rounds": 2}
    settings |= {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "split": "dirichlet:5"}
    made = DEFENSES[defense]()
    loop, pairs, all_ = (
        trained(normalized_model(), made, how={"fused": False, "chunk": chunk}, **settings) for chunk in (1, 2, 8)
    )
    assert far(pairs.model, loop.model) < 1e-10
    assert far(all_.model, loop.model) < 1e-10
    assert far(loop.model, normalized_model().double()) > 1e-3


def test_bfloat16_goes_the_same_way_and_keeps_the_statistics_of_each_client() -> None:
    settings: dict[str, Any] = {"method": "fedsgd", "batchnorm": "batch-shared", "rate": 0.05}
    exact = trained(normalized_model(), **settings)
    federation = Federation(clients=3, rounds=4, batch_size=4, **settings)
    rounded = train_federation(normalized_model(), DATA, JUDGED, federation, Defense(), precision="bf16")
    assert 0 < far(rounded.model, exact.model) < 0.02
    assert far(exact.model, normalized_model()) > 0.1


def test_a_model_that_looks_across_the_batch_is_left_to_the_loop() -> None:
    class Centered(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0, keepdim=True)

    model = nn.Sequential(Centered(), plain_model())
    one = trained(model, method="fedsgd")
    assert any("mixes the pictures of a batch" in note for note in one.notes)
    assert far(one.model, trained(model, method="fedsgd", how={"fused": False}).model) < 1e-12


def test_error_feedback_sends_in_the_end_what_top_k_kept_back() -> None:
    from gradveil.defenses.topk import TopK

    plain = trained(plain_model(), method="fedsgd", rounds=12)
    cut = trained(plain_model(), TopK(keep=0.05), method="fedsgd", rounds=12)
    fed = trained(plain_model(), TopK(keep=0.05), method="fedsgd", rounds=12, error_feedback=True)
    assert far(fed.model, plain.model) < far(cut.model, plain.model)


def test_precode_changes_the_shared_model_once() -> None:
    got = trained(plain_model(), DEFENSES["precode"](size=4), rounds=2)
    assert any("bottleneck" in name for name in got.model.state_dict())


def test_training_learns_under_every_split() -> None:
    for split in ("iid", "dirichlet:0.5", "classes:2"):
        got = trained(plain_model(), rounds=8, rate=0.3, split=split, momentum=0.9)
        assert got.accuracy == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"split": "dirichlet:-1"},
        {"split": "classes:0"},
        {"method": "fedd"},
        {"momentum": 1.0},
        {"nesterov": True},
        {"per_round": 11},
        {"rate": float("nan")},
        {"neighbors": "random:0"},
        {"topology": "gossip", "per_round": 2},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Federation(**wrong)
