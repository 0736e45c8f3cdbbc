"""`gradveil.invert`: from what `torch.autograd.grad` returns to pictures."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gradveil
from gradveil.attacks.autoattack import autoattack
from gradveil.config.invert import SHARES, list_efforts, observe_gradient
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed, uniform
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

SHAPE, CLASSES = (3, 12, 12), 5
MODEL = MODELS["lenet"](classes=CLASSES, shape=SHAPE, seed=1)
PICTURE = F.interpolate(uniform((1, 3, 4, 4), Seed(2).rng(), torch.zeros(())), 12, mode="bilinear")


def gradient_of(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(F.cross_entropy(model(images), labels), list(model.parameters()))


GRADIENT = gradient_of(MODEL, PICTURE, torch.tensor([3]))


@pytest.mark.parametrize("labels", [None, 3, [3], torch.tensor([3]), F.one_hot(torch.tensor([3]), CLASSES).float()])
def test_a_gradient_gives_its_picture(labels: Any) -> None:
    found = gradveil.invert(MODEL, GRADIENT, labels, shape=SHAPE)
    assert peak_signal_to_noise(found.images, PICTURE).item() > 45
    assert found.match > 0.999
    assert found.labels.tolist() in ([3], [[0, 0, 0, 1, 0]])


def test_names_and_places_are_the_same() -> None:
    named = dict(zip((name for name, _ in MODEL.named_parameters()), GRADIENT, strict=True))
    one, other = (gradveil.invert(MODEL, given, 3, shape=SHAPE) for given in (GRADIENT, named))
    assert torch.equal(one.images, other.images)


def test_a_client_that_normalizes_outside() -> None:
    gradient = gradient_of(MODEL, (PICTURE - 0.4) / 0.3, torch.tensor([1]))
    found = gradveil.invert(MODEL, gradient, 1, shape=SHAPE, normalize="0.4,0.4,0.4/0.3,0.3,0.3")
    assert peak_signal_to_noise(found.images, PICTURE).item() > 40


def test_the_model_stays_as_it_was() -> None:
    model = MODELS["lenet"](classes=CLASSES, shape=SHAPE, seed=1).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradveil.invert(model, GRADIENT, 3, shape=SHAPE)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_the_mode_of_the_model_is_that_of_the_client() -> None:
    modes = [observe_gradient(MODEL.train(on), GRADIENT, 3, SHAPE, None, None, "none") for on in (True, False)]
    assert [seen.training.batchnorm for seen in modes] == ["batch", "eval"]


def test_a_failed_attack_says_that_it_failed() -> None:
    """Noise is the gradient of no picture."""
    noise = [torch.randn(g.shape, generator=torch.Generator().manual_seed(0)) for g in GRADIENT]
    found = gradveil.invert(MODEL, noise, 3, shape=SHAPE, steps=8)
    assert found.match < 0.5
    assert "no protection" in found.summary


def test_it_draws_itself() -> None:
    found = gradveil.invert(MODEL, GRADIENT, 3, shape=SHAPE)
    assert found._repr_html_().count("<img") == 1
    assert found.show().size == (120, 120)


def test_without_time_the_least_effort_alone_follows_the_closed_forms() -> None:
    stages = autoattack().stages
    listed = [name for name, _ in list_efforts(stages, time.monotonic() - 1)]
    assert listed == [*(name for name, one in stages.items() if one.evaluations is None), "portfolio"]
    every = [attack for name, attack in list_efforts(stages, time.monotonic() + 1e6) if name == "portfolio"]
    counts = [attack.evaluations[1] for attack in every if attack.evaluations]
    assert len(counts) == len(SHARES)
    assert counts == sorted(counts)
    assert counts[-1] == stages["portfolio"].evaluations[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gradient": GRADIENT[:-1]}, "gradient: has 7 tensors, the model has 8 parameters"),
        ({"gradient": {f"x{n}": g for n, g in enumerate(GRADIENT)}}, "gradient: has no 'conv1.weight'"),
        ({"gradient": [*GRADIENT[:-1], GRADIENT[0]]}, r"gradient: fc.bias must be \(5,\), got"),
        ({"gradient": [g * torch.nan for g in GRADIENT]}, "not finite, so no picture made it"),
        ({"labels": 5}, "labels: must be classes from 0 to 4"),
        ({"labels": [1, 2], "examples": 3}, "labels: must be 3, as many as `examples`, got 2"),
        ({"labels": [0.5]}, "labels: must be classes from 0 to 4"),
        ({"shape": (3, 40, 40)}, "shape: the model cannot take pictures"),
        ({"seconds": 0.0}, "seconds: must be above 0, got 0"),
        ({"normalize": "0.5/0.5"}, "normalize: 0.5/0.5 has 1 means"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"gradient": GRADIENT, "labels": 3, "shape": SHAPE} | change
    with pytest.raises(ConfigError, match=said):
        gradveil.invert(MODEL, given.pop("gradient"), given.pop("labels"), **given)
