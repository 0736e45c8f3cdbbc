"""A client that looks at the model before it trains on it."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from flower_toys import Nodes, context, identity, reply_with, state_of, step, train_message
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import nn

import gradveil.flower
from gradveil.core.errors import ConfigError
from gradveil.inspection import PlantedModelError


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))


def planted() -> nn.Module:
    """Robbing the Fed (Fowl et al., 2022): every neuron measures the same, with thresholds of their own."""
    model = copy.deepcopy(net())
    first = model[1]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.copy_(torch.ones_like(first.weight) / 64)
        first.bias.copy_(-torch.linspace(0.2, 0.8, 32))
    return model


def app_of(mod: object) -> tuple[ClientApp, list[Message]]:
    app, trained = ClientApp(mods=[mod]), []

    @app.train()
    def _train(message: Message, context: Context) -> Message:
        trained.append(message)
        return reply_with(message, step(message))

    return app, trained


def test_a_planted_model_is_not_trained_on() -> None:
    app, trained = app_of(gradveil.flower.refuse_planted(net()))
    with pytest.raises(PlantedModelError):
        app(train_message(state_of(planted())), context())
    assert not trained


def test_an_honest_model_is() -> None:
    pictures = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    app, trained = app_of(gradveil.flower.refuse_planted(net(), reference=net(), data=lambda where: pictures))
    app(train_message(state_of(net())), context())
    assert len(trained) == 1


def test_the_server_is_not_told_what_gave_it_away(caplog: pytest.LogCaptureFixture) -> None:
    app, _ = app_of(gradveil.flower.refuse_planted(net()))
    identity()
    nodes = Nodes({7: lambda message: app(message, context())})
    with caplog.at_level(logging.ERROR):
        (reply,) = nodes.send_and_receive([train_message(state_of(planted()))])
    assert reply.has_error()
    assert "proportional" not in reply.error.reason
    assert "proportional rows" in caplog.text


def test_a_layer_that_was_replaced_is_seen_by_the_reference() -> None:
    other = copy.deepcopy(net())
    with torch.no_grad():
        other[1].weight.copy_(torch.randn(32, 64, generator=torch.Generator().manual_seed(9)) * 5)  # type: ignore[union-attr]
    app, _ = app_of(gradveil.flower.refuse_planted(net(), reference=net()))
    with pytest.raises(PlantedModelError):
        app(train_message(state_of(other)), context())


def test_another_architecture_is_refused() -> None:
    app, trained = app_of(gradveil.flower.refuse_planted(net()))
    more = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    with pytest.raises(ConfigError, match="do not fit"):
        app(train_message(state_of(more)), context())
    assert not trained


def test_messages_that_train_nothing_are_not_looked_at() -> None:
    app, _ = app_of(gradveil.flower.refuse_planted(net()))
    app.query()(lambda message, where: reply_with(message, {}))
    app(train_message(state_of(planted()), kind="query"), context())
