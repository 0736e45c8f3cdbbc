"""Planted models are found, honest ones are not, and a client can refuse one."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from honest_models import ARCHITECTURES, RUNS, STAGES, honest
from planted_models import Variant, plant, shipped_variants, variants
from torch import Tensor, nn

from gradveil.core.errors import ConfigError, GradveilError
from gradveil.core.types import Batch
from gradveil.inspection import PlantedModelError, inspect, refuse_if_planted


def found(model: nn.Module, images: Tensor | None = None) -> set[str]:
    return {m.check for m in inspect(model, images).findings}


def test_planted_models_are_found_light() -> None:
    """24 variants of both attacks by planters of our own, with and without pictures: all of them."""
    light = [v for v in variants(60) if v.host != "mobilenet" and v.neurons <= 128][:24]
    assert {v.attack for v in light} == {"rtf", "cah"}
    for variant in light:
        model, images = plant(variant)
        assert inspect(model).planted, variant
        assert inspect(model, images).planted, variant


def test_what_the_audit_plants_is_found_light() -> None:
    """Every eighth of what the package's own attacks plant, by the contents of the layer and not by its place."""
    chosen = [v for v in shipped_variants() if v.host != "mobilenet"][::8]
    assert {v.attack for v in chosen} == {"rtf", "cah"}
    for variant in chosen:
        checks = found(plant(variant)[0])
        assert checks & {"proportional rows", "half-negative rows"}, variant


def test_honest_models_are_not_accused_light() -> None:
    """Two training runs of four architectures, 56 checkpoints: none."""
    checkpoints = list(honest(("lenet", "mlp", "wide-mlp", "cnn"), 2, (1, 4)))
    assert len(checkpoints) == 56
    assert [c.label for c in checkpoints if inspect(c.model, c.images).planted] == []


@pytest.mark.slow
def test_planted_models_are_found() -> None:
    """At least 99 % of 324: 240 variants of our own planters and 84 of the package's attacks."""
    chosen = [*variants(240), *shipped_variants()]
    assert len(chosen) == 324
    caught = sum(inspect(*plant(variant)).planted for variant in chosen)
    assert caught >= 0.99 * len(chosen)


@pytest.mark.slow
def test_honest_models_are_not_accused() -> None:
    """At most 1 % of the checkpoints of 45 training runs."""
    checkpoints = list(honest(ARCHITECTURES, len(RUNS), STAGES))
    assert len(checkpoints) >= 300
    assert sum(inspect(c.model, c.images).planted for c in checkpoints) <= 0.01 * len(checkpoints)


@pytest.mark.parametrize("file", ["resnet20_cifar10", "lpips_alex"])
def test_models_that_others_trained_are_not_accused(file: str, shared_data: Path) -> None:
    model = nn.Module()
    with np.load(shared_data / f"{file}.npz") as arrays:
        for name in arrays.files:
            if arrays[name].dtype.kind == "f":
                model.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(arrays[name]).float()))
    inspection = inspect(model)
    assert len(inspection.checked) > 20
    assert not inspection.planted


def test_pictures_find_what_noise_hides_in_the_weights() -> None:
    """Noise of twice the rows' length and no even ladder: the weights say nothing, what the neurons do says it all."""
    model, images = plant(Variant(attack="rtf", host="mlp", place="inside", noise=2.0, jitter=300.0))
    assert found(model) == set()
    assert "one scalar" in found(model, images)


def test_signs_hide_nothing() -> None:
    """Half of the neurons look from the other side."""
    model, images = plant(Variant(attack="rtf", host="mlp", place="inside", noise=2.0, jitter=300.0))
    layer = model.get_submodule("fc1")
    assert isinstance(layer, nn.Linear)
    layer.weight.data[::2] *= -1
    layer.bias.data[::2] *= -1
    assert "one scalar" in found(model, images)


def test_the_verdict_never_reassures() -> None:
    model, images = plant(Variant(attack="cah", host="cnn"))
    assert inspect(model, images).verdict.startswith("planted structure found: ")
    host = ARCHITECTURES["cnn"](seed=0)
    assert inspect(host.model, host.images).verdict == "nothing found by these checks"


def test_a_client_refuses() -> None:
    host = ARCHITECTURES["cnn"](seed=0)
    assert refuse_if_planted(host.model, Batch(host.images, host.public.labels[: len(host.images)])).checked
    model, _ = plant(Variant(attack="rtf", host="cnn"))
    with pytest.raises(PlantedModelError, match=r"^model: planted structure found: proportional rows"):
        refuse_if_planted(model)
    assert issubclass(PlantedModelError, GradveilError)
    assert PlantedModelError.exit_code == 3


def test_the_model_stays_as_it_was() -> None:
    host = ARCHITECTURES["cnn"](seed=0)
    host.model.train().requires_grad_(False)
    before = copy.deepcopy(host.model.state_dict())
    with torch.no_grad():
        inspect(host.model, host.images)
    assert host.model.training
    assert not any(p.requires_grad or p.grad is not None for p in host.model.parameters())
    assert all(torch.equal(before[name], value) for name, value in host.model.state_dict().items())


def test_the_reference_shows_what_was_added_and_replaced() -> None:
    host = ARCHITECTURES["mlp"](seed=0)
    assert not inspect(host.model, reference=host.model).planted
    drifted = copy.deepcopy(host.model)
    for parameter in drifted.parameters():
        parameter.data += 0.5 * parameter.data.std(correction=0) * torch.randn(parameter.shape)
    assert not inspect(drifted, reference=host.model).planted
    inside, _ = plant(Variant(attack="cah", host="mlp", place="inside"))
    checks = {m.check: m.layer for m in inspect(inside, reference=host.model.state_dict()).findings}
    assert checks["rows unlike the reference's"] == "fc1.weight"
    front, _ = plant(Variant(attack="rtf", host="mlp"))
    added = [m.layer for m in inspect(front, reference=host.model).findings if "lacks" in m.check]
    assert "0.planted.weight" in added


def test_numbers_that_are_none_are_bad_input() -> None:
    """A statistic of NaN would lie beyond no threshold."""
    model = copy.deepcopy(ARCHITECTURES["mlp"](seed=0).model)
    next(model.parameters()).data[0, 0] = float("nan")
    with pytest.raises(ConfigError, match="not finite"):
        inspect(model)


def test_too_few_pictures_are_said() -> None:
    host = ARCHITECTURES["mlp"](seed=0)
    assert any("too few" in reason for reason in inspect(host.model, host.images[:3]).skipped)


def test_tied_neurons_are_no_ladder_and_untied_ones_are() -> None:
    """Copies that agree in weights and bias split no batch; the same rows with biases of their own do."""
    layer = nn.Linear(300, 64)
    layer.weight.data[:] = layer.weight.data[:1]
    layer.bias.data[:] = layer.bias.data[:1]
    assert found(layer) == set()
    layer.bias.data += 0.1 * torch.rand(64)
    assert found(layer) == {"proportional rows"}


def test_a_variant_counts_for_each_option() -> None:
    """The tables of variants reach every place, functional and way of hiding."""
    chosen = list(variants(240))
    for name in ("attack", "place", "functional", "scaled", "hardtanh", "factor", "paired", "noise", "jitter", "host"):
        assert len({getattr(v, name) for v in chosen}) >= 2, name
    assert len({replace(v, seed=0) for v in chosen}) > 150
