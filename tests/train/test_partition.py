"""Whose pictures are whose."""

from __future__ import annotations

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.train.gossip import links_of, mixing_weights
from gradveil.train.partition import partition
from gradveil.train.settings import Federation

LABELS = torch.arange(600) % 10
SPLITS = ["iid", "dirichlet:0.05", "dirichlet:0.5", "dirichlet:1000", "classes:2", "classes:10"]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("clients", [5, 7])
def test_every_picture_has_one_owner(split: str, clients: int) -> None:
    shares = partition(LABELS, Federation(clients=clients, split=split))
    assert len(shares) == clients
    assert all(len(share) for share in shares)
    assert torch.equal(torch.cat(shares).sort().values, torch.arange(600))


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_is_decided_by_the_seed(split: str) -> None:
    first, again, other = (partition(LABELS, Federation(split=split, seed=seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    soft = partition(torch.eye(10)[LABELS], Federation(split=split))
    assert all(torch.equal(a, b) for a, b in zip(first, soft, strict=True))


def test_iid_shares_are_equal_and_dirichlet_shares_skewed() -> None:
    def skew(split: str) -> float:
        shares = partition(LABELS, Federation(split=split))
        counts = torch.stack([LABELS[share].bincount(minlength=10) for share in shares]).double()
        return float((counts / counts.sum(1, keepdim=True)).max(1).values.mean())

    assert {len(share) for share in partition(LABELS, Federation())} == {60}
    assert skew("dirichlet:0.05") > skew("dirichlet:0.5") > skew("dirichlet:1000") > 0.1
    assert skew("dirichlet:1000") < 0.15


def test_few_classes_are_as_many_as_asked_for() -> None:
    for share in partition(LABELS, Federation(split="classes:2")):
        assert len(LABELS[share].unique()) == 2


@pytest.mark.parametrize("split", ["classes:11", "classes:0", "dirichlet:0", "dirichlet:nan", "half", "iid:2"])
def test_splits_that_cannot_be_are_refused(split: str) -> None:
    with pytest.raises(ConfigError, match="split"):
        partition(LABELS, Federation(split=split))


def test_more_clients_than_pictures() -> None:
    with pytest.raises(ConfigError, match="number of pictures"):
        partition(LABELS[:4], Federation())


@pytest.mark.parametrize("neighbors", ["ring", "complete", "random:2"])
def test_mixing_keeps_the_mean_and_brings_nodes_together(neighbors: str) -> None:
    federation = Federation(clients=6, topology="gossip", neighbors=neighbors)
    values = torch.randn(6, generator=torch.Generator().manual_seed(0)).double()
    mix_table = values
    for round in range(60):
        weights = mixing_weights(links_of(federation, round))
        assert bool((weights >= -1e-15).all())
        assert torch.allclose(weights, weights.T)
        mix_table = weights @ mix_table
    assert torch.allclose(mix_table, values.mean().expand(6), atol=1e-6)


def test_a_silent_node_is_nobodys_neighbor() -> None:
    weights = mixing_weights(links_of(Federation(clients=5, topology="gossip"), 1), silent=[2])
    alone = torch.zeros(5, dtype=torch.float64)
    alone[2] = 1
    assert torch.equal(weights[2], alone)
    assert torch.equal(weights[:, 2], alone)
    assert torch.allclose(weights.sum(1), torch.ones(5, dtype=torch.float64))
