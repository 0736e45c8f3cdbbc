"""The curious server: it records what it saw, changes nothing, and lets nothing unsound reach the strategy."""

from __future__ import annotations

import math
import random
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flower_toys import Nodes, identity, reply_with, small_net, state_of, step
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    Strategy,
)
from torch.utils.data import DataLoader, TensorDataset

import gradveil.flower
from gradveil import capture
from gradveil.capture.mode import describe_mode
from gradveil.capture.preflight import check_capture
from gradveil.capture.replay import replay
from gradveil.core.local_training import BatchNorm
from gradveil.core.own_loss import OwnLoss, as_own_loss
from gradveil.core.scenario import LocalTraining
from gradveil.core.target import Target
from gradveil.core.types import Batch
from gradveil.flower.arrays import record_of, tensors_of
from gradveil.flower.curious_server import CuriousServer, MissingNodesError, read_rounds
from gradveil.flower.round_capture import Protocol

PROTOCOL = Protocol(training=LocalTraining(rate=0.5), shape=(1, 8, 8), classes=3, defense="none")
Answer = Callable[[Message], Message | None]


def moves(size: float) -> Answer:
    return lambda message: reply_with(message, step(message, size), loss=size)


def sound(count: int = 4) -> dict[int, Answer]:
    return {100 + k: moves(0.1 * (k + 1)) for k in range(count)}


def trained(strategy: Strategy, nodes: dict[int, Answer], rounds: int = 2) -> dict[str, torch.Tensor]:
    identity()
    random.seed(0)  # Flower's sampling puts the replies in an order, and sums of floats have one
    start = record_of(state_of(small_net()))
    result = strategy.start(Nodes(nodes), start, num_rounds=rounds)  # type: ignore[arg-type]
    return tensors_of(result.arrays)


def fed_avg() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0, min_available_nodes=2)


def curious(folder: Path, inner: Strategy | None = None, **options) -> CuriousServer:
    return CuriousServer(inner or fed_avg(), folder, PROTOCOL, **options)


@pytest.mark.parametrize("inner", [
    fed_avg,
    lambda: FedAdam(fraction_evaluate=0.0),
    lambda: FedMedian(fraction_evaluate=0.0),
    lambda: DifferentialPrivacyServerSideFixedClipping(fed_avg(), 0.0, clipping_norm=0.1, num_sampled_clients=4),
])  # fmt: skip
def test_the_strategy_ends_with_the_same_weights(inner: Callable[[], Strategy], tmp_path: Path) -> None:
    alone, watched = trained(inner(), sound()), trained(curious(tmp_path, inner()), sound())
    assert all(torch.equal(alone[name], watched[name]) for name in alone)


def test_counters_that_flower_averaged_to_floats_come_back_whole(tmp_path: Path) -> None:
    """A model loads the average into a whole number, and sends that."""

    def counts(message: Message) -> Message:
        after = dict(step(message))
        after["1.num_batches_tracked"] = after["1.num_batches_tracked"].long() + 1
        return reply_with(message, after, loss=0.1)

    trained(curious(tmp_path), {100: counts, 101: counts}, rounds=3)
    assert [len(line["kept"]) for line in read_rounds(tmp_path)] == [2, 2, 2]
    one, three = (capture.load(tmp_path / f"round-000{number}.safetensors").weights for number in (1, 3))
    assert three["1.num_batches_tracked"] > one["1.num_batches_tracked"]


def test_a_capture_holds_the_model_and_every_update_by_node(tmp_path: Path) -> None:
    trained(curious(tmp_path), sound())
    before = state_of(small_net())
    seen = capture.load(tmp_path / "round-0001.safetensors")
    assert seen.clients == ("node-100", "node-101", "node-102", "node-103")
    assert all(torch.equal(seen.weights[name], t) for name, t in before.items())
    for k, name in enumerate(seen.clients):
        for update in seen.updates[name].values():
            torch.testing.assert_close(update, torch.full_like(update, -0.1 * (k + 1)), atol=1e-6, rtol=0)
        assert seen.metrics[name]["loss"] == pytest.approx(0.1 * (k + 1))
    assert set(seen.updates["node-100"]) == {n for n, _ in small_net().named_parameters()}
    seen_mode = LocalTraining(rate=0.5, batchnorm="batch-shared")  # statistics came back changed
    assert (seen.round, seen.training, seen.examples["node-100"]) == (1, seen_mode, 4)
    assert capture.load(tmp_path / "round-0002.safetensors").round == 2


def test_only_the_owner_reads_what_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    trained(curious(folder), sound())
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_only_the_rounds_asked_for_are_captured(tmp_path: Path) -> None:
    trained(curious(tmp_path, rounds=[2]), sound(), rounds=3)
    assert sorted(p.name for p in tmp_path.glob("*.safetensors")) == ["round-0002.safetensors"]
    assert [line["round"] for line in read_rounds(tmp_path)] == [1, 2, 3]


def changed(**arrays) -> Answer:
    """A reply with some arrays replaced; None leaves one out."""

    def answer(message: Message) -> Message:
        after = {**step(message), **arrays}
        return reply_with(message, {name: t for name, t in after.items() if t is not None})

    return answer


def weighed(value: object) -> Answer:
    def answer(message: Message) -> Message:
        metrics = MetricRecord({"num-examples": value, "loss": 0.0})  # type: ignore[dict-item]
        return Message(RecordDict({"arrays": record_of(step(message)), "metrics": metrics}), reply_to=message)

    return answer


def forged(message: Message) -> Message:
    """A header that claims far more numbers than there are bytes."""
    reply = moves(0.1)(message)
    arrays = dict(reply.content["arrays"].items())
    header = np.zeros(3, np.float32)
    data = Array(header).data.replace(b"(3,)", b"(99999999999,)").replace(b" " * 10 + b"\n", b"\n")
    arrays["3.bias"] = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=data)
    reply.content["arrays"] = ArrayRecord(arrays)
    return reply


def raises(message: Message) -> Message:
    raise RuntimeError("no\nmemory")


def gone(message: Message) -> Message:
    """The SuperLink answers in the place of a node that is gone, as node 1."""
    reply = Message(Error(code=3, reason="Node unavailable"), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 1
    return reply


def intruder(message: Message) -> Message:
    """A reply with arrays by a node that nobody asked."""
    reply = moves(0.5)(message)
    reply.metadata.__dict__["_src_node_id"] = 5
    return reply


BAD: dict[str, tuple[Answer, str]] = {
    "nan": (changed(**{"3.bias": torch.full((3,), math.nan)}), "3.bias: numbers that are not finite"),
    "infinite": (changed(**{"1.running_var": torch.full((2,), math.inf)}), "not finite"),
    "huge": (changed(**{"3.bias": torch.full((3,), 1e30)}), "a step of more than"),
    "shape": (changed(**{"3.bias": torch.zeros(4)}), "3.bias: shape (4,), expected (3,)"),
    "scalar": (changed(**{"3.bias": torch.zeros(())}), "shape (), expected (3,)"),
    "missing": (changed(**{"3.bias": None}), "other arrays than were sent: 3.bias"),
    "extra": (changed(more=torch.zeros(1)), "other arrays than were sent: more"),
    "complex": (changed(**{"3.bias": torch.zeros(3, dtype=torch.complex64)}), "numbers of type complex64"),
    "whole": (changed(**{"3.bias": torch.zeros(3, dtype=torch.int32)}), "numbers of type int32"),
    "forged": (forged, "3.bias"),
    "weight nan": (weighed(math.nan), "num-examples: not a number above 0"),
    "weight negative": (weighed(-4), "num-examples"),
    "weight list": (weighed([1, 2]), "num-examples"),
    "other metrics": (lambda m: reply_with(m, step(m)), "records of another form"),
    "no arrays": (lambda m: Message(RecordDict(), reply_to=m), "holds 0 records"),
    "error": (lambda m: Message(Error(code=7, reason="left"), reply_to=m), "error 7: left"),
    "raises": (raises, "error 2: no\nmemory"),
    "gone": (gone, "error 3: Node unavailable"),
    "intruder": (intruder, "no reply in time"),
    "never": (lambda m: None, "no reply in time"),
}


@pytest.mark.parametrize("kind", BAD)
def test_one_bad_client_is_named_and_the_others_are_averaged(kind: str, tmp_path: Path) -> None:
    answer, reason = BAD[kind]
    got = trained(curious(tmp_path), {**sound(3), 666: answer}, rounds=1)
    expected = trained(fed_avg(), sound(3), rounds=1)
    assert all(torch.allclose(got[name], expected[name]) for name in expected)
    (line,) = read_rounds(tmp_path)
    assert reason in line["left_out"]["node-666"]
    assert line["kept"] == ["node-100", "node-101", "node-102"]
    assert capture.load(tmp_path / "round-0001.safetensors").clients == ("node-100", "node-101", "node-102")


def test_two_hundred_hostile_updates_leave_the_model_finite(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    hostile = [math.nan, math.inf, -math.inf, 3e38, -1e20]

    def poisoned(k: int) -> Answer:
        def answer(message: Message) -> Message:
            after = {name: t.clone() for name, t in step(message).items()}
            name = list(after)[int(torch.randint(len(after), (1,), generator=rng))]
            if not after[name].is_floating_point():
                name = "3.weight"
            after[name].view(-1)[int(torch.randint(after[name].numel(), (1,), generator=rng))] = hostile[k % 5]
            return reply_with(message, after, loss=0.1)

        return answer

    got = trained(curious(tmp_path), {**sound(2), **{1000 + k: poisoned(k) for k in range(200)}}, rounds=1)
    assert all(t.isfinite().all() for t in got.values())
    (line,) = read_rounds(tmp_path)
    assert len(line["left_out"]) == 200
    assert len(line["kept"]) == 2


def test_a_round_with_too_few_replies_is_void(tmp_path: Path) -> None:
    nodes = {100: moves(0.1), 101: lambda m: None, 102: lambda m: None}
    identity()
    strategy, start = curious(tmp_path, min_replies=2), record_of(state_of(small_net()))
    result = strategy.start(Nodes(nodes), start, num_rounds=1)  # type: ignore[arg-type]
    assert not result.arrays
    assert read_rounds(tmp_path)[0]["void"] is True


@pytest.mark.parametrize("killed", [1, 2, 4])
def test_clients_that_die_in_a_round(killed: int, tmp_path: Path) -> None:
    nodes = {100 + k: moves(0.1) if k >= killed else (lambda m: None) for k in range(5)}
    got = trained(curious(tmp_path), nodes, rounds=2)
    torch.testing.assert_close(got["3.bias"], state_of(small_net())["3.bias"] + 0.2)
    assert all(len(line["left_out"]) == killed for line in read_rounds(tmp_path))


def test_nodes_that_never_come_end_the_wait(tmp_path: Path) -> None:
    with pytest.raises(MissingNodesError, match="1 of 2 nodes are connected after 0 s \\(100\\)"):
        trained(curious(tmp_path, wait=0.0), sound(1))


def test_clients_that_trained_otherwise_are_in_a_capture_of_their_own(tmp_path: Path) -> None:
    def many(message: Message) -> Message:
        reply = moves(0.3)(message)
        reply.content["metrics"]["num-examples"] = 64
        return reply

    report = Protocol(training=lambda round, n: LocalTraining(steps=n // 4), shape=(1, 8, 8), classes=3)
    trained(CuriousServer(fed_avg(), tmp_path, report), {**sound(2), 300: many}, rounds=1)
    one, two = (capture.load(tmp_path / f"round-0001{end}.safetensors") for end in ("", ".2"))
    assert one.clients == ("node-100", "node-101")
    assert (two.clients, two.training.steps) == (("node-300",), 16)


BUFFERS = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


@pytest.mark.parametrize("declared", ["eval", "batch", "batch-shared"])
def test_statistics_that_came_are_captured_whatever_was_declared(declared: BatchNorm, tmp_path: Path) -> None:
    said = Protocol(training=LocalTraining(batchnorm=declared), shape=(1, 8, 8), classes=3)
    trained(CuriousServer(fed_avg(), tmp_path, said), sound(2), rounds=1)
    seen = capture.load(tmp_path / "round-0001.safetensors")
    assert set(seen.statistics["node-100"]) == BUFFERS
    torch.testing.assert_close(seen.statistics["node-101"]["1.running_mean"], torch.full((2,), 0.2))
    assert seen.training.batchnorm == "batch-shared"
    (line,) = read_rounds(tmp_path)
    if declared == "batch-shared":
        assert (seen.declared, line.get("batchnorm")) == ({}, None)
    else:
        assert seen.declared == {"batchnorm": declared}
        assert line["batchnorm"] == {"declared": declared, "seen": "batch-shared"}
        assert any(f"was declared {declared}" in note for note in check_capture(seen, small_net()))
    assert describe_mode(seen, "node-100").startswith("each batch's own statistics")
    assert "1 forward pass by its counters" in describe_mode(seen, "node-100")


def parameters_only(size: float) -> Answer:
    def answer(message: Message) -> Message:
        before = tensors_of(message.content["arrays"])  # type: ignore[arg-type]
        return reply_with(message, {**step(message, size), **{name: before[name] for name in BUFFERS}})

    return answer


@pytest.mark.parametrize("declared", ["eval", "batch-shared"])
def test_statistics_that_stayed_say_that_clients_normalized_by_them(declared: BatchNorm, tmp_path: Path) -> None:
    said = Protocol(training=LocalTraining(batchnorm=declared), shape=(1, 8, 8), classes=3)
    trained(CuriousServer(fed_avg(), tmp_path, said), {1: parameters_only(0.1), 2: parameters_only(0.2)}, rounds=1)
    seen = capture.load(tmp_path / "round-0001.safetensors")
    assert (seen.training.batchnorm, seen.declared) == (declared, {})
    assert describe_mode(seen, "node-1").endswith("(eval)")
    notes = [note for note in check_capture(seen, small_net()) if "seems to be eval" in note]
    assert len(notes) == (2 if declared == "batch-shared" else 0)


def test_all_numbers_that_came_are_kept(tmp_path: Path) -> None:
    def answer(message: Message) -> Message:
        metrics = MetricRecord({"num-examples": 4, "loss": 0.5, "by-class": [0.25, 0.75], "bad": math.nan})
        more = ConfigRecord({"seconds": 2.5, "device": "cpu", "done": True})
        records = {"arrays": record_of(step(message)), "metrics": metrics, "more": more}
        return Message(RecordDict(records), reply_to=message)

    trained(CuriousServer(FedMedian(fraction_evaluate=0.0), tmp_path, PROTOCOL), {1: answer, 2: answer}, rounds=1)
    seen = capture.load(tmp_path / "round-0001.safetensors").metrics["node-1"]
    assert math.isnan(seen["bad"])
    found = {key: value for key, value in seen.items() if key != "bad"}
    assert found == {"num-examples": 4, "loss": 0.5, "by-class.0": 0.25, "by-class.1": 0.75, "seconds": 2.5, "done": 1}


def test_more_numbers_than_a_capture_takes_are_counted_and_the_round_is_captured(tmp_path: Path) -> None:
    def answer(message: Message) -> Message:
        many = MetricRecord({"num-examples": 4, "many": [0.1] * 20_000, "n" * 60: 1.0})
        return Message(RecordDict({"arrays": record_of(step(message)), "metrics": many}), reply_to=message)

    trained(CuriousServer(FedMedian(fraction_evaluate=0.0), tmp_path, PROTOCOL), {1: answer, 2: answer}, rounds=1)
    assert len(capture.load(tmp_path / "round-0001.safetensors").metrics["node-1"]) == 5_000
    assert read_rounds(tmp_path)[0]["metrics_left_out"] == {"node-1": 15_002, "node-2": 15_002}


def test_examples_are_those_that_the_strategy_weighs_by(tmp_path: Path) -> None:
    def answer(message: Message) -> Message:
        metrics = MetricRecord({"num-examples": 99, "pictures": 7})
        return Message(RecordDict({"arrays": record_of(step(message)), "metrics": metrics}), reply_to=message)

    inner = FedAvg(fraction_evaluate=0.0, weighted_by_key="pictures")
    trained(CuriousServer(inner, tmp_path, PROTOCOL), {1: answer, 2: answer}, rounds=1)
    assert capture.load(tmp_path / "round-0001.safetensors").examples == {"node-1": 7, "node-2": 7}


def test_reasons_are_kept_whole(tmp_path: Path) -> None:
    reason = " and ".join(f"layer {number} has no memory" for number in range(500))
    failed: Answer = lambda m: Message(Error(code=7, reason=reason), reply_to=m)  # noqa: E731
    trained(curious(tmp_path), {**sound(2), 666: failed}, rounds=1)
    assert read_rounds(tmp_path)[0]["left_out"]["node-666"] == f"error 7: {reason}"


def test_a_round_that_cannot_be_written_as_a_capture_goes_on(tmp_path: Path) -> None:
    report = Protocol(training=LocalTraining(), shape=(1, 8, 8), classes=-3)
    got = trained(CuriousServer(fed_avg(), tmp_path, report), sound(2), rounds=1)
    assert got["3.bias"].isfinite().all()
    assert "classes" in read_rounds(tmp_path)[0]["not_captured"]


def test_names_of_the_inner_strategy_are_offered(tmp_path: Path) -> None:
    assert gradveil.flower.CuriousServer(fed_avg(), tmp_path, PROTOCOL).weighted_by_key == "num-examples"


def test_a_shuffled_loader_and_adam_are_captured_and_replayed(tmp_path: Path) -> None:
    """The training loop is the user's own, with nothing of gradveil in it."""
    pictures = {node: torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(node)) for node in (100, 101)}
    labels = torch.tensor([0, 1, 2, 0])

    def trains(message: Message) -> Message:
        net, data = small_net().eval(), pictures[message.metadata.dst_node_id]
        net.load_state_dict(tensors_of(message.content["arrays"]))  # type: ignore[arg-type]
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        loader = DataLoader(TensorDataset(data, labels), batch_size=2, shuffle=True)
        for images, own in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), own).backward()
            optimizer.step()
        return reply_with(message, state_of(net))

    training = LocalTraining(optimizer="adam", rate=1e-3, epochs=1, batch_size=2, order="unknown")
    protocol = Protocol(training=training, shape=(1, 8, 8), classes=3)
    trained(CuriousServer(fed_avg(), tmp_path, protocol), dict.fromkeys(pictures, trains), rounds=1)
    seen = capture.load(tmp_path / "round-0001.safetensors")
    assert seen.training == training
    model = small_net()
    model.load_state_dict(dict(seen.weights))
    for node, data in pictures.items():
        for images, expected in ((data, "reproduced"), (data.flip(0), "not reproduced")):
            own = Batch(images, torch.nn.functional.one_hot(labels, 3).float())
            assert replay(seen, model.eval(), f"node-{node}", own).status == expected


def mean_outputs(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs * targets).mean()


def test_a_round_carries_the_name_of_a_loss_and_what_pictures_are_answered_with(tmp_path: Path) -> None:
    training = LocalTraining(rate=0.5, loss=as_own_loss(mean_outputs))
    target = Target(shape=(3, 8, 8), kind="several")
    protocol = Protocol(training=training, shape=(1, 8, 8), classes=3, target=target)
    trained(CuriousServer(fed_avg(), tmp_path, protocol), sound(), rounds=1)
    seen = capture.load(tmp_path / "round-0001.safetensors")
    assert seen.training.loss == f"{Path(__file__).name}:mean_outputs"
    assert isinstance(seen.training.loss, OwnLoss)
    assert seen.training.loss.function is None
    assert seen.answer == target
