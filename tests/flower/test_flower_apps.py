"""The ready apps against the local engine: the same rounds, without a process. Restarts too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flower_toys import Nodes, context, identity, state_of
from flwr.app import Message
from flwr.serverapp.strategy import FedAdam, FedAvg
from torch import Tensor, nn

import gradveil.flower
from gradveil import capture
from gradveil.core.client import in_client_mode
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.flower.curious_server import read_rounds
from gradveil.flower.server import FlowerServer
from gradveil.flower.server_files import ServerFiles
from gradveil.flower.strategy import draw_clients
from gradveil.flower.train import train as train_by_flower
from gradveil.train.client import running_of
from gradveil.train.clients import Clients
from gradveil.train.partition import partition
from gradveil.train.server_rounds import ServerRounds, zero_velocity
from gradveil.train.settings import Federation
from gradveil.train.state import State

SHAPE, CLASSES, COUNT = (1, 8, 8), 3, 24


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, CLASSES))


def pictures() -> Batch:
    images = torch.rand(COUNT, *SHAPE, generator=torch.Generator().manual_seed(1))
    return Batch(images, torch.eye(CLASSES)[torch.arange(COUNT) % CLASSES])


def data_of(federation: Federation) -> Callable[[str], Batch]:
    shares = partition(pictures().labels, federation)

    def of(client: str) -> Batch:
        own = shares[federation.names.index(client)]
        return Batch(pictures().images[own], pictures().labels[own])

    return of


def nodes_of(federation: Federation, defense: str = "none", seed: int | None = 0) -> Nodes:
    """Every node with an app and a state of its own; node ids have another order than clients."""
    app = gradveil.flower.client_app(net, data_of(federation), federation, defense, seed=seed)
    contexts = {900 - k: context(k, 900 - k) for k in range(federation.clients)}

    def answer(node: int) -> Callable[[Message], Message]:
        return lambda message: app(message, contexts[node])

    return Nodes({node: answer(node) for node in contexts})


def served(folder: Path, federation: Federation, defense: str = "none", **options) -> FlowerServer:
    report = {"model": net, "shape": SHAPE, "classes": CLASSES, "validation": pictures, "wait": 0.0}
    return FlowerServer(folder=folder, federation=federation, defense=defense, **{**report, **options})


def by_flower(folder: Path, federation: Federation, defense: str = "none", **options) -> dict[str, Tensor]:
    identity()
    server = served(folder, federation, defense, **options)
    server.main(nodes_of(federation, defense), context())  # type: ignore[arg-type]
    model = parse_defense(defense).model(net())
    ServerFiles(folder).resume(model, momentum=False)
    return state_of(model)


def by_the_local_engine(federation: Federation, defense: str = "none") -> State:
    model, acting = net(), parse_defense(defense)
    clients = Clients(
        model=in_client_mode(model, federation.local_training(1, 0.0)),
        data=pictures(),
        shares=partition(pictures().labels, federation),
        federation=federation,
        defense=acting,
        chunk=1,
    )
    params = {name: p.detach() for name, p in model.named_parameters()}
    running = running_of(model) if federation.batchnorm == "batch-shared" else {}
    start = State(round=0, params=params, running=running, velocity=zero_velocity(params, federation))
    return ServerRounds(clients).block(start, federation.rounds)[0]


SMALL = Federation(clients=4, rounds=3, batch_size=4, rate=0.1)
KINDS: dict[str, tuple[Federation, str]] = {
    "fedavg": (SMALL, "none"),
    "local epochs and momentum": (replace(SMALL, local_epochs=2, momentum=0.9, weight_decay=1e-3), "none"),
    "fedprox": (replace(SMALL, method="fedprox", proximal=0.5, local_epochs=2), "none"),
    "fedsgd": (replace(SMALL, method="fedsgd", momentum=0.9, weight_decay=1e-2, decay=True), "none"),
    "nesterov": (replace(SMALL, method="fedsgd", momentum=0.9, nesterov=True), "none"),
    "unequal": (replace(SMALL, split="dirichlet:0.5"), "none"),
    "some clients": (replace(SMALL, per_round=2, rounds=4), "none"),
    "noise": (SMALL, "gaussian:scale=0.1"),
    "policy": (SMALL, "ats:3-1-7"),
    "mixing": (SMALL, "mixup:k=2"),
    "feedback": (replace(SMALL, error_feedback=True), "topk:keep=0.1"),
    "statistics": (replace(SMALL, batchnorm="batch-shared", local_epochs=2), "none"),
    "augmented": (replace(SMALL, augment=True), "none"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_flower_plays_the_rounds_of_the_local_engine(kind: str, tmp_path: Path) -> None:
    federation, defense = KINDS[kind]
    got, expected = by_flower(tmp_path, federation, defense), by_the_local_engine(federation, defense)
    for name, weight in expected.params.items():
        torch.testing.assert_close(got[name], weight, atol=1e-5, rtol=1e-5)
    for name, value in expected.running.items():
        layer, _, what = name.rpartition(".")
        torch.testing.assert_close(got[f"{layer}.running_{what}"], value, atol=1e-5, rtol=1e-5)
    assert any(not torch.equal(got[name], state_of(net())[name]) for name in expected.params)


def test_the_draw_of_clients_is_the_local_engine_s() -> None:
    federation = Federation(clients=10, per_round=3)
    clients = Clients(model=net(), data=pictures(), shares=(), federation=federation, defense=Defense())
    assert [draw_clients(federation, n) for n in range(1, 9)] == [clients.draw(n) for n in range(1, 9)]


def test_the_curve_has_loss_and_accuracy_of_every_round(tmp_path: Path) -> None:
    by_flower(tmp_path, SMALL)
    curve = ServerFiles(tmp_path).curve()
    assert [one.round for one in curve] == [1, 2, 3]
    assert all(one.loss > 0 and 0 <= (one.accuracy or 0) <= 1 and not one.void for one in curve)


@pytest.mark.parametrize(("kind", "done"), [("fedavg", 2), ("fedsgd", 1)])
def test_a_server_killed_between_rounds_ends_with_the_same_weights(kind: str, done: int, tmp_path: Path) -> None:
    federation, defense = KINDS[kind]
    undisturbed = by_flower(tmp_path / "one", federation, defense)
    with pytest.raises(KeyboardInterrupt):
        by_flower(tmp_path / "two", federation, defense, validation=_dies_after(done))
    assert max(ServerFiles(tmp_path / "two").models()) == done
    resumed = by_flower(tmp_path / "two", federation, defense)
    assert all(torch.equal(undisturbed[name], resumed[name]) for name in undisturbed)
    rounds = [line["round"] for line in read_rounds(tmp_path / "two")]
    assert rounds == [*range(1, done + 2), *range(done + 1, federation.rounds + 1)]  # one was played twice
    assert [one.round for one in ServerFiles(tmp_path / "two").curve()] == [*range(1, federation.rounds + 1)]


def _dies_after(done: int) -> Callable[[], Batch]:
    """The evaluation of the next round is a place before its checkpoint."""
    calls = iter(range(done))

    def validation() -> Batch:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return pictures()

    return validation


def test_a_finished_federation_is_not_played_again(tmp_path: Path) -> None:
    by_flower(tmp_path, SMALL)
    by_flower(tmp_path, SMALL)
    assert len(read_rounds(tmp_path)) == 3


def test_momentum_that_is_gone_is_not_taken_for_none(tmp_path: Path) -> None:
    federation, _ = KINDS["fedsgd"]
    by_flower(tmp_path, federation)
    (tmp_path / "velocity-0003.safetensors").unlink()
    with pytest.raises(ConfigError, match="velocity-0003"):
        served(tmp_path, replace(federation, rounds=5)).main(nodes_of(federation), context())  # type: ignore[arg-type]


def test_checkpoints_that_were_asked_for_are_kept(tmp_path: Path) -> None:
    by_flower(tmp_path, replace(SMALL, rounds=5), checkpoints=frozenset({2}))
    assert list(ServerFiles(tmp_path).models()) == [2, 5]


@pytest.mark.parametrize("strategy", [FedAvg, FedAdam])
def test_any_strategy_of_flower_s_serves(strategy: Callable, tmp_path: Path) -> None:
    got = by_flower(tmp_path, SMALL, strategy=lambda: strategy(fraction_evaluate=0.0, min_available_nodes=4))
    assert len(capture.load(tmp_path / "round-0003.safetensors").clients) == 4
    if strategy is FedAvg:  # the same mean, of weights in the place of updates
        expected = by_the_local_engine(SMALL)
        torch.testing.assert_close(got["4.weight"], expected.params["4.weight"], atol=1e-5, rtol=1e-5)


def test_a_client_without_a_seed_draws_anew_whatever_the_server_repeats(tmp_path: Path) -> None:
    federation = replace(SMALL, rounds=1)
    for name in ("one", "two"):
        identity()
        server = served(tmp_path / name, federation, "gaussian:scale=0.1")
        (tmp_path / name).mkdir()
        server.main(nodes_of(federation, "gaussian:scale=0.1", seed=None), context())  # type: ignore[arg-type]
    one, two = (capture.load(tmp_path / name / "round-0001.safetensors") for name in ("one", "two"))
    assert not torch.equal(one.updates["node-900"]["4.weight"], two.updates["node-900"]["4.weight"])


def test_what_is_captured_is_what_the_client_trained(tmp_path: Path) -> None:
    """From weights on the wire to the picture: one example, one step, a linear first layer."""
    federation = Federation(clients=COUNT, rounds=1, batch_size=1, rate=0.1)
    identity()

    def linear() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))

    app = gradveil.flower.client_app(linear, data_of(federation), federation, seed=0)
    nodes = Nodes({900 - k: (lambda m, k=k: app(m, context(k))) for k in range(COUNT)})
    served(tmp_path, federation, model=linear).main(nodes, context())  # type: ignore[arg-type]
    seen = capture.load(tmp_path / "round-0001.safetensors")
    for k in range(COUNT):
        update = seen.updates[f"node-{900 - k}"]
        picture = update["1.weight"][0] / update["1.bias"][0]
        torch.testing.assert_close(picture, data_of(federation)(f"client-{k}").images.flatten(), atol=1e-3, rtol=0)


@pytest.mark.parametrize(("change", "expectation"), [
    ({"model_name": "lenett"}, "did you mean 'lenet'"),
    ({"defense_text": "prune:ratio=7"}, "defense: prune: ratio"),
    ({"federation": Federation(clients=2, topology="gossip")}, "topology: gossip has no server"),
])  # fmt: skip
def test_what_cannot_work_is_said_before_a_process_is_started(change: dict, expectation: str, tmp_path: Path) -> None:
    asked = {"model_name": "mlp", "federation": SMALL, "defense_text": "none", **change}
    with pytest.raises(ConfigError, match=expectation):
        train_by_flower(
            asked["model_name"],
            {},
            pictures(),
            pictures(),
            asked["federation"],
            asked["defense_text"],
            folder=tmp_path / "x",
        )
    assert not (tmp_path / "x").exists()
