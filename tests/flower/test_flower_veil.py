"""The defense as a client mod: what it changes, what it leaves alone, and when it sends nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from flower_toys import context, reply_with, small_net, state_of, step, train_message
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import gradveil.flower
from gradveil.core import client
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch
from gradveil.defenses import DEFENSES
from gradveil.flower.arrays import ArraysError, record_of, tensors_of
from gradveil.flower.defense_mod import VeilError

PARAMETERS = ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias")
STATISTICS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


def batch(count: int = 4) -> Batch:
    images = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    return Batch(images, torch.eye(3)[torch.arange(count) % 3])


def app_of(mod: object, train=None) -> ClientApp:
    app = ClientApp(mods=[mod])

    @app.train()
    def _train(message: Message, context: Context) -> Message:
        return (train or (lambda m, c: reply_with(m, step(m))))(message, context)

    @app.query()
    def _query(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    @app.evaluate()
    def _evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=message)

    return app


def sent_by(app: ClientApp, message: Message, where: Context | None = None) -> dict[str, torch.Tensor]:
    return tensors_of(app(message, where or context()).content["arrays"])


def test_an_update_defense_acts_on_weights_and_on_nothing_else() -> None:
    before = state_of(small_net())
    sent = sent_by(app_of(gradveil.flower.veil("sign")), train_message(before))
    for name in PARAMETERS:
        torch.testing.assert_close(before[name] - sent[name], torch.full_like(before[name], -1.0))
    for name in STATISTICS:
        assert torch.equal(sent[name], before[name] + (0.1 if before[name].is_floating_point() else 1))
        assert sent[name].dtype == before[name].dtype


def test_what_is_sent_is_the_defense_of_the_whole_update() -> None:
    """Pruning ranks all layers together, so that one call for each layer would give something else."""
    net = small_net()
    before = state_of(net)
    after = {
        n: t + torch.randn(t.shape, generator=torch.Generator().manual_seed(5))
        for n, t in before.items()
        if n in PARAMETERS
    }
    app = app_of(gradveil.flower.veil("prune:ratio=0.9"), lambda m, c: reply_with(m, {**before, **after}))
    sent = sent_by(app, train_message(before))
    expected = DEFENSES["prune"](ratio=0.9).update({n: before[n] - after[n] for n in PARAMETERS}, torch.Generator())
    for name in PARAMETERS:
        torch.testing.assert_close(before[name] - sent[name], expected[name], atol=1e-6, rtol=0)
    zeros = sum(int((before[n] == sent[n]).sum()) for n in PARAMETERS)
    assert zeros >= 0.9 * sum(before[n].numel() for n in PARAMETERS) - 1


def test_noise_is_new_in_every_call_though_the_server_repeats_itself() -> None:
    app, message = app_of(gradveil.flower.veil("gaussian:scale=0.5")), train_message(state_of(small_net()))
    one, two = sent_by(app, message), sent_by(app, message)
    assert not torch.equal(one["3.weight"], two["3.weight"])


def test_a_seed_repeats_a_client_and_tells_clients_and_rounds_apart() -> None:
    message = train_message(state_of(small_net()))

    def noise(partition: int, rounds: int) -> torch.Tensor:
        app, where = app_of(gradveil.flower.veil("gaussian:scale=0.5", seed=1)), context(partition)
        return [sent_by(app, message, where)["3.weight"] for _ in range(rounds)][-1]

    assert torch.equal(noise(0, 2), noise(0, 2))
    assert not torch.equal(noise(0, 1), noise(0, 2))
    assert not torch.equal(noise(0, 1), noise(1, 1))


def test_the_server_is_told_nothing_where_training_ignored_the_defense() -> None:
    app = app_of(gradveil.flower.veil("ats:3-1-7"))
    with pytest.raises(VeilError, match="did not use stage batch"):
        app(train_message(state_of(small_net())), context())


def test_a_training_loop_of_ones_own_uses_the_stages() -> None:
    fed: list[Batch] = []

    def train(message: Message, where: Context) -> Message:
        fed.append(gradveil.flower.defense_of(where).batch(batch()))
        return reply_with(message, step(message))

    sent = sent_by(app_of(gradveil.flower.veil("oasis-mr", seed=1), train), train_message(state_of(small_net())))
    assert len(fed[0].images) > len(batch().images)
    assert set(sent) == {*PARAMETERS, *STATISTICS}


@pytest.mark.parametrize("text", ["none", "oasis-mr", "prune:ratio=0.5", "mixup:k=2", "sign"])
def test_local_update_is_the_one_forward_model_with_every_stage(text: str) -> None:
    net, training = small_net(), LocalTraining(steps=2, rate=0.1, batch_size=2)

    def train(message: Message, where: Context) -> Message:
        arrays = gradveil.flower.local_update(small_net(), message, batch(), where, training)
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 4})}), reply_to=message)

    mod = gradveil.flower.veil(text, seed=1)
    sent = sent_by(app_of(mod, train), train_message(state_of(net)))
    seed = mod._seed(context())
    data = mod.defense.data(batch(), seed.at("data").rng())
    params, model = client.parameters_of(net), client.in_client_mode(net, training)
    update = client.local_update(model, params, data, training, mod.defense, seed.at("client").rng())
    for name in PARAMETERS:
        torch.testing.assert_close(sent[name], params[name] - update[name])
    assert torch.equal(sent["1.running_var"], state_of(net)["1.running_var"])


def test_training_on_after_local_update_is_not_sent() -> None:
    def train(message: Message, where: Context) -> Message:
        arrays = tensors_of(gradveil.flower.local_update(small_net(), message, batch(), where))
        return reply_with(message, {**arrays, "3.bias": arrays["3.bias"] + 1})

    with pytest.raises(VeilError, match=r"3\.bias is not what local_update returned"):
        app_of(gradveil.flower.veil("ats:3-1-7"), train)(train_message(state_of(small_net())), context())


def test_the_round_leaves_nothing_behind_in_the_context() -> None:
    where = context()
    sent_by(app_of(gradveil.flower.veil("sign")), train_message(state_of(small_net())), where)
    assert set(vars(where)) == set(vars(context()))
    assert not where.state


def test_other_messages_pass_unless_they_carry_arrays() -> None:
    app, weights = app_of(gradveil.flower.veil("sign")), state_of(small_net())
    reply = app(train_message(weights, kind="evaluate"), context())
    assert reply.content["metrics"]["loss"] == 1.0
    with pytest.raises(VeilError, match="query message holds arrays"):
        app(train_message(weights, kind="query"), context())


def test_a_train_action_is_training_too() -> None:
    app = ClientApp(mods=[gradveil.flower.veil("ats:3-1-7")])

    @app.train("extra")
    def _train(message: Message, context: Context) -> Message:
        return reply_with(message, step(message))

    with pytest.raises(VeilError):
        app(train_message(state_of(small_net()), kind="train.extra"), context())


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "whole", "two"])
def test_a_reply_of_another_form_is_not_sent(change: str) -> None:
    def train(message: Message, where: Context) -> Message:
        after = step(message)
        if change == "missing":
            after.pop("3.bias")
        if change == "extra":
            after["more"] = torch.zeros(2)
        if change == "shape":
            after["3.bias"] = torch.zeros(5)
        if change == "whole":
            after["3.bias"] = torch.zeros(3, dtype=torch.int64)
        reply = reply_with(message, after)
        if change == "two":
            reply.content["pictures"] = record_of({"pictures": batch().images})
        return reply

    with pytest.raises(ArraysError):
        app_of(gradveil.flower.veil("sign"), train)(train_message(state_of(small_net())), context())


def test_arrays_without_names_have_to_be_named() -> None:
    arrays = [t.numpy() for t in state_of(small_net()).values()]
    message = train_message({})
    message.content["arrays"] = ArrayRecord(arrays)
    with pytest.raises(ConfigError, match="trainable"):
        app_of(gradveil.flower.veil("sign"))(message, context())
    sent = sent_by(app_of(gradveil.flower.veil("sign", trainable=["7"])), message)
    assert torch.allclose(sent["7"] - tensors_of(message.content["arrays"])["7"], torch.tensor(1.0))
    assert torch.allclose(sent["0"] - tensors_of(message.content["arrays"])["0"], torch.tensor(0.1))


def test_buffers_of_ones_own_are_told_by_the_model() -> None:
    net = small_net()
    net.register_buffer("mean", torch.ones(2))
    sent = sent_by(app_of(gradveil.flower.veil("gaussian:scale=1.0", trainable=net)), train_message(state_of(net)))
    assert torch.allclose(sent["mean"], torch.tensor(1.1))


@pytest.mark.parametrize("text", ["nonsense", "prune:ratio=7", "prune:rate=1", "ats:missing-policy.json", ""])
def test_what_cannot_be_built_is_said_when_the_app_starts(text: str) -> None:
    with pytest.raises(ConfigError, match="veil"):
        gradveil.flower.veil(text)


def test_importing_the_package_does_not_import_flower() -> None:
    code = (
        "import sys, gradveil.flower; assert 'flwr' not in sys.modules; sys.modules['flwr'] = None; "
        "gradveil.flower.veil"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "install gradveil[flower]" in done.stderr
