"""What cannot be an update is refused before an attack, and what can be one is let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pictures import rows, sent_by
from torch import Tensor

from gradveil.capture import Capture, content_hash, load, save
from gradveil.capture.names import rename_for
from gradveil.capture.preflight import check_capture, model_of, pattern
from gradveil.cli import main
from gradveil.config import from_tables
from gradveil.config.captured_audit import open_case
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.defenses import DEFENSES
from gradveil.models import MODELS


def checked(capture: Capture) -> list[str]:
    return check_capture(capture, model_of(capture), "f")


def changed(capture: Capture, change: Callable[[str, Tensor], Tensor]) -> Capture:
    updates = {client: {n: change(n, u) for n, u in own.items()} for client, own in capture.updates.items()}
    return replace(capture, updates=updates)


PLAIN = sent_by(rows(0), rows(1))


def test_nothing_is_strange_about_a_plain_one() -> None:
    assert checked(PLAIN) == []


@pytest.mark.parametrize("name", sorted(set(MODELS) & {"lenet", "convnet8", "mlp"}))
@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=2, rate=0.01, weight_decay=0.1)])
def test_a_sound_round_is_let_through(name: str, training: LocalTraining) -> None:
    checked(sent_by(rows(0, 2), rows(2, 2), model=name, training=training))


@pytest.mark.parametrize(("name", "options"), [("gaussian", {"scale": 0.1}), ("prune", {"ratio": 0.99}), ("sign", {})])
def test_a_defended_round_is_let_through(name: str, options: dict[str, float]) -> None:
    checked(sent_by(rows(0), rows(1), defense=DEFENSES[name](**options)))


@pytest.mark.parametrize("step", [0.0, 1e-3])
def test_weights_are_no_update(step: float) -> None:
    weights = changed(PLAIN, lambda name, u: PLAIN.weights[name] - step * u)
    with pytest.raises(ConfigError, match=r"f: updates/client-\d: .*looks like weights.*save w_sent - w_after|too"):
        checked(replace(weights, updates={"client-0": weights.updates["client-0"]}))


def test_a_flipped_sign_is_seen_without_the_pictures() -> None:
    with pytest.raises(ConfigError, match=r"updates/client-0/fc.bias: its sign is flipped"):
        checked(changed(PLAIN, lambda _, u: -u))


def test_nothing_and_the_same_for_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="client-0: is zero everywhere"):
        checked(changed(sent_by(rows(0)), lambda _, u: 0 * u))
    same = replace(PLAIN, updates=dict.fromkeys(PLAIN.updates, PLAIN.updates["client-0"]))
    with pytest.raises(ConfigError, match=r"client-1: is the update of client-0 too.*aggregate"):
        checked(same)


def test_statistics_that_moved_contradict_eval_mode() -> None:
    capture = sent_by(rows(0, 2), model="convnet8")
    name = next(name for name in capture.weights if name.endswith("running_mean"))
    moved = {"client-0": {name: capture.weights[name] + 0.1}}
    with pytest.raises(ConfigError, match=r"training.batchnorm: is eval, but client-0"):
        checked(replace(capture, statistics=moved))
    checked(replace(capture, statistics={"client-0": {name: capture.weights[name]}}))


def test_patterns_of_defenses_are_told() -> None:
    (report,) = checked(sent_by(rows(0), defense=DEFENSES["sign"]()))
    assert "only signs were sent" in report
    (report,) = checked(sent_by(rows(0), defense=DEFENSES["prune"](ratio=0.9)))
    assert "of its numbers are zero, beside numbers that are not" in report


def test_silent_neurons_and_black_pixels_are_no_defense() -> None:
    """The gradient of a linear layer by one picture: an outer product, most of it whole rows and columns of zeros."""
    neurons, pixels = torch.tensor([0.0, 0.0, 3.0, 0.0]), torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0])
    outer = neurons[:, None] * pixels
    assert pattern({"fc.weight": outer, "fc.bias": neurons}) == ""
    scattered = torch.eye(5) * torch.arange(1.0, 6.0)
    assert pattern({"fc.weight": scattered}).startswith("80% of its numbers are zero")


def test_a_model_that_does_not_fit_is_told_by_its_layer() -> None:
    renamed = {name.replace("conv1", "konv1"): tensor for name, tensor in PLAIN.weights.items()}
    with pytest.raises(
        ConfigError, match=r"weights/konv1.weight: the model has no such layer, did you mean 'conv1.weight'"
    ):
        model_of(replace(PLAIN, weights=renamed))
    with pytest.raises(ConfigError, match="normalization: the weights hold constants"):
        model_of(replace(PLAIN, normalization=None))
    less = {c: {n: u for n, u in own.items() if n != "fc.bias"} for c, own in PLAIN.updates.items()}
    with pytest.raises(ConfigError, match=r"updates/client-0/fc.bias: is missing"):
        model_of(replace(PLAIN, updates=less))


def test_a_capture_never_names_code() -> None:
    with pytest.raises(ConfigError, match=r"unknown name 'evil.py:build'"):
        model_of(replace(PLAIN, model="evil.py:build"))
    with pytest.raises(ConfigError, match="model: the capture does not name one, set `model`"):
        model_of(replace(PLAIN, model=""))


def test_the_weights_are_those_sent() -> None:
    sent = {name: tensor + 0.5 if name == "fc.bias" else tensor for name, tensor in PLAIN.weights.items()}
    assert torch.equal(model_of(replace(PLAIN, weights=sent)).state_dict()["fc.bias"], sent["fc.bias"])


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "model."])
def test_a_prefix_of_a_wrapper_is_recognized_and_said(prefix: str) -> None:
    plain = sent_by(rows(0, 2), model="convnet8", training=LocalTraining(batchnorm="batch-shared"))
    back = {name.replace("running_", ""): t + 0.1 for name, t in plain.weights.items() if "running_" in name}

    def wrap(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {prefix + name: tensor for name, tensor in tensors.items()}

    plain = replace(plain, statistics={"client-0": back})
    wrapped = replace(
        plain, weights=wrap(plain.weights), updates={"client-0": wrap(plain.updates["client-0"])},
        statistics={"client-0": wrap(back)},
    )  # fmt: skip
    model = model_of(wrapped)
    assert all(torch.equal(t, plain.weights[name]) for name, t in model.state_dict().items())
    renamed, note = rename_for(wrapped, model)
    assert note.startswith(f"every name in the capture begins with {prefix!r}")
    for kind in ("weights", "updates", "statistics"):
        found, expected = getattr(renamed, kind), getattr(plain, kind)
        inner = [(found, expected)] if kind == "weights" else [(found["client-0"], expected["client-0"])]
        assert all(set(one) == set(other) for one, other in inner)
    assert rename_for(plain, model) == (plain, "")
    assert check_capture(renamed, model) == check_capture(plain, model)


def test_a_wrapped_capture_is_shown_and_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = sent_by(rows(0))
    update = {f"module.{name}": tensor for name, tensor in plain.updates["client-0"].items()}
    weights = {f"module.{name}": tensor for name, tensor in plain.weights.items()}
    path = save(tmp_path / "wrapped.safetensors", replace(plain, weights=weights, updates={"client-0": update}))
    with pytest.raises(SystemExit) as ended:
        main(["capture", "show", str(path)])
    assert not ended.value.code
    assert "begins with 'module.'" in capsys.readouterr().out
    case = open_case(from_tables({"scenario": {"capture": str(path), "data": ""}}))
    assert any("begins with 'module.'" in note for note in case.notes)
    assert set(case.capture.updates["client-0"]) == set(plain.updates["client-0"])
    assert case.sha256 == content_hash(load(path))
