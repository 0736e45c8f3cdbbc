"""`veil(..., epsilon_at_most=)`: the round that would exceed the budget is refused, and nothing is sent."""

from __future__ import annotations

import pytest
import torch
from flower_toys import context, reply_with, small_net, state_of, step, train_message
from flwr.app import Context, Message, MetricRecord, RecordDict
from torch import nn

import gradveil.flower
from gradveil.core.client import gradient_of, parameters_of
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.dp.allowance import allowance_of
from gradveil.flower.privacy_guard import SPENT, VeilError, spent_in

CLIENT = "local-dp:clipping_norm=1,sensitivity=1,epsilon=2"
EXAMPLE = "dpsgd:noise=3"
MODEL = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
DATA = Batch(torch.rand(10, 1, 4, 4), torch.eye(3)[torch.arange(10) % 3])


def rounds_until_refused(mod: object, call, where: Context) -> tuple[int, str]:
    """How many were sent, and what was said of the next one. Whoever trained is asked once more each time."""
    message = train_message(state_of(MODEL))
    for number in range(1000):
        try:
            mod(message, where, call)  # type: ignore[operator]
        except VeilError as refused:
            return number, str(refused)
    raise AssertionError("never refused")


def test_a_client_sends_as_often_as_the_budget_allows_and_does_not_train_then() -> None:
    trained = []

    def train(message: Message, where: Context) -> Message:
        trained.append(1)
        return reply_with(message, step(message))

    allowed = allowance_of(parse_defense(CLIENT), 1, 5.0, 1e-5).releases
    sent, said = rounds_until_refused(gradveil.flower.veil(CLIENT, epsilon_at_most=5.0), train, context())
    assert sent == len(trained) == allowed > 1
    assert said.startswith("veil: this round would raise epsilon to ")
    assert said.endswith("above 5, nothing is sent")
    assert "\n" not in said


@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(epochs=2, batch_size=4, rate=0.1)])
def test_local_update_is_refused_before_its_first_step(training: LocalTraining) -> None:
    def train(message: Message, where: Context) -> Message:
        arrays = gradveil.flower.local_update(MODEL, message, DATA, where, training)
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)

    allowed = allowance_of(parse_defense(EXAMPLE), 1, 4.0, 1e-5).releases
    where = context()
    sent, said = rounds_until_refused(gradveil.flower.veil(EXAMPLE, epsilon_at_most=4.0), train, where)
    each = 2 if training.epochs else 1
    assert sent == allowed // each
    assert spent_in(where) == sent * each, "what was refused is not spent"
    assert f"({sent * each + each} noisy releases per example)" in said


def test_a_loop_of_ones_own_is_counted_gradient_by_gradient() -> None:
    def train(message: Message, where: Context) -> Message:
        round_ = gradveil.flower.defense_of(where)
        compute = round_.gradient(gradient_of(MODEL, LocalTraining()), MODEL)
        for _ in range(3):
            compute(parameters_of(MODEL), DATA)
        return reply_with(message, state_of(MODEL))

    allowed = allowance_of(parse_defense(EXAMPLE), 1, 4.0, 1e-5).releases
    where = context()
    sent, _ = rounds_until_refused(gradveil.flower.veil(EXAMPLE, epsilon_at_most=4.0), train, where)
    assert sent == allowed // 3
    assert spent_in(where) == 3 * sent


def test_layers_of_the_model_that_is_sent_count_for_fedcdp() -> None:
    message, where = train_message(state_of(small_net())), context()
    mod = gradveil.flower.veil("fedcdp:noise=1", epsilon_at_most=4.0)
    one = allowance_of(parse_defense("fedcdp:noise=1"), 1, 4.0, 1e-5)
    assert one.epsilon_after(1) > 4.0
    with pytest.raises(VeilError, match="1 noisy release per example"):
        mod(message, where, lambda m, c: reply_with(m, step(m)))
    assert SPENT not in where.state


def test_clients_are_counted_apart_and_an_answer_that_is_an_error_is_free() -> None:
    mod, (one, other) = gradveil.flower.veil(CLIENT, epsilon_at_most=5.0), (context(0), context(1))
    message = train_message(state_of(MODEL))
    mod(message, one, lambda m, c: reply_with(m, step(m)))
    assert (spent_in(one), spent_in(other)) == (1, 0)
    with pytest.raises(RuntimeError):
        mod(message, other, _fail)
    assert spent_in(other) == 0


def _fail(message: Message, where: Context) -> Message:
    raise RuntimeError("no data")


def test_statistics_that_leave_without_noise_are_not_sent() -> None:
    message = train_message(state_of(small_net()))
    with pytest.raises(VeilError, match="running_mean leaves without noise"):
        gradveil.flower.veil(CLIENT, epsilon_at_most=5.0)(message, context(), lambda m, c: reply_with(m, step(m)))


@pytest.mark.parametrize("defense", ["none", "gaussian", "prune"])
def test_a_defense_without_an_epsilon_is_refused_when_the_app_starts(defense: str) -> None:
    with pytest.raises(ConfigError, match="epsilon_at_most"):
        gradveil.flower.veil(defense, epsilon_at_most=5.0)
