"""A capture and a model that do not belong together: the layer that shows it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pictures import rows, sent_by

from gradveil.capture import Capture
from gradveil.capture.preflight import check_capture, last_bias, model_of
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining


def without(tensors: dict, name: str) -> dict:
    return {key: tensor for key, tensor in tensors.items() if key != name}


def change(**changes: object) -> Callable[[Capture], Capture]:
    return lambda sent: replace(sent, **changes)


def extra_weight(sent: Capture) -> Capture:
    return replace(sent, weights={**sent.weights, "conv9.weight": torch.ones(2)})


def other_shape(sent: Capture) -> Capture:
    return replace(sent, weights={**sent.weights, "conv1.weight": torch.ones(2)})


def lost_weight(sent: Capture) -> Capture:
    return replace(sent, weights=without(dict(sent.weights), "conv1.weight"))


def lost_constants(sent: Capture) -> Capture:
    return replace(sent, weights={k: v for k, v in sent.weights.items() if not k.startswith("normalize.")})


def lost_update(sent: Capture) -> Capture:
    return replace(sent, updates={client: without(dict(u), "conv1.weight") for client, u in sent.updates.items()})


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (extra_weight, "weights/conv9.weight: the model has no such layer"),
        (other_shape, r"weights/conv1.weight: has the shape \(2,\), the model has"),
        (lost_weight, "weights/conv1.weight: is missing"),
        (lost_update, "updates/client-0/conv1.weight: is missing"),
        (change(normalization=None), "normalization: the weights hold constants and the capture says null"),
        (lost_constants, "normalization: the weights hold no such constants, set it to null"),
        (change(model=""), "the capture does not name one"),
        (change(model="lenets"), "did you mean 'lenet'"),
    ],
)
def test_what_does_not_fit_is_named(spoil: Callable[[Capture], Capture], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        model_of(spoil(sent_by(rows(0))), "", "x")


def test_a_name_that_the_catalogue_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'lenet'"):
        model_of(sent_by(rows(0)), "lenets", "x")


def test_a_model_of_the_users_own_takes_the_weights(tmp_path: Path) -> None:
    sent = sent_by(rows(0), model="mlp")
    file = tmp_path / "mine.py"
    file.write_text(
        "from gradveil.models import MODELS\n"
        "def build(classes, shape):\n"
        "    return MODELS['mlp'](classes=classes, shape=shape, seed=1, mean=(0.5,) * 3, std=(0.5,) * 3)\n"
    )
    model = model_of(sent, f"{file}:build", "x")
    assert all(torch.equal(tensor, sent.weights[name]) for name, tensor in model.state_dict().items())


def test_a_buffer_is_no_update() -> None:
    sent = sent_by(rows(0), model="resnet20-4")
    buffer = next(name for name in sent.weights if name.endswith("running_mean"))
    updates = {client: {**update, buffer: sent.weights[buffer]} for client, update in sent.updates.items()}
    with pytest.raises(ConfigError, match="is a buffer and no trained parameter"):
        model_of(replace(sent, updates=updates), "", "x")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"training": LocalTraining(batchnorm="batch")}, "the model has no batch normalization"),
        ({"training": LocalTraining(rate=0.1)}, "one step at rate 0.1"),
        ({"defense": "gaussian"}, "which nobody can check"),
        ({"normalization": None}, "normalization is null"),
    ],
)
def test_what_is_only_strange_is_a_note(changes: dict, expected: str) -> None:
    sent = sent_by(rows(0))
    model = model_of(sent, "", "x")
    assert any(expected in note for note in check_capture(replace(sent, **changes), model))
    assert not any(expected in note for note in check_capture(sent, model))


def test_a_model_without_linear_layers_has_no_last_bias() -> None:
    assert last_bias(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1))) is None
    assert last_bias(torch.nn.Sequential(torch.nn.Linear(2, 2))) == "0.bias"
