"""`r-gap`: one picture through a chain of layers, from the head to the front."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, MEAN, STD, drawn, one_hot, perceptron, seen_in, smooth, usual
from torch import Tensor, nn

from gradveil.attacks.r_gap import r_gap
from gradveil.audit.controls import blind
from gradveil.core.attack import Reconstruction
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from

ODD = (1, 10, 7)


def scenario_of(model: nn.Module, shape: tuple[int, int, int], examples: int = 1) -> Scenario:
    private = Batch(drawn(2, examples, *shape, seed=6), one_hot(2, examples))
    like = next(model.parameters())
    private = Batch(*(x.to(like) for x in private))
    return Scenario(name="s", model=model, private=private, names=("a", "b"), training=LocalTraining(),
                    threat=ThreatModel(knows_labels=False))  # fmt: skip


def quality(got: Reconstruction, scenario: Scenario) -> Tensor:
    return peak_signal_to_noise(got.images, scenario.private.images)


class Functional(nn.Module):
    """Two linear layers at the end, functions instead of layers, the picture in another order of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.fc1, self.fc2 = nn.Linear(128, 30), nn.Linear(30, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.conv1((x.flip(1) - 0.5) / 0.25))
        x = torch.sigmoid(self.conv2(x)).flatten(1)
        return self.fc2(torch.tanh(self.fc1(x)))


def leaky() -> nn.Module:
    with weights_from(3):
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 3, padding=1), nn.LeakyReLU(0.2)]
        return nn.Sequential(Normalize(MEAN, STD), *layers, nn.Flatten(), nn.Linear(512, CLASSES)).double()


def functional() -> nn.Module:
    with weights_from(4):
        return Functional().double()


@pytest.mark.parametrize("model", [smooth, leaky, functional])
def test_the_picture_comes_out(model: Callable[[], nn.Module]) -> None:
    scenario = scenario_of(model(), (3, 8, 8))
    got = r_gap().reconstruct(seen_in(scenario), Seed(0))
    assert got.found.all()
    assert (quality(got, scenario) > 60).all()
    assert torch.equal(got.labels, scenario.private.labels)


@pytest.mark.parametrize("shape", [ODD, (3, 16, 16)])
def test_lenet_in_float32(shape: tuple[int, int, int]) -> None:
    """Equations through flat parts of an activation weigh less: with equal weights it is 81 dB in color."""
    channels = shape[0]
    scenario = scenario_of(
        MODELS["lenet"](classes=CLASSES, shape=shape, mean=MEAN[:channels], std=STD[:channels]), shape
    )
    assert (quality(r_gap().reconstruct(seen_in(scenario), Seed(0)), scenario) > 100).all()


def test_what_the_replay_does_not_confirm_is_not_found() -> None:
    scenario = scenario_of(smooth(), (3, 8, 8))
    seen = seen_in(scenario)
    swapped = dict(seen.update) | {"1.weight": seen.update["1.weight"].flip(1)}
    for wrong in (seen_in(scenario, Gaussian(scale=0.1)), blind(seen, Seed(1)), replace(seen, update=swapped)):
        got = r_gap().reconstruct(wrong, Seed(0))
        assert not got.found.any()
        assert got.loss.isfinite().all()


@pytest.mark.parametrize(("model", "why"), [(usual, "branch|undo"), (perceptron, "undo")])
def test_other_models_are_left_out(model: Callable[[], nn.Module], why: str) -> None:
    with pytest.raises(NotApplicableError, match=why):
        r_gap().check(seen_in(scenario_of(model(), (3, 8, 8))))


def test_too_few_equations_are_named() -> None:
    layers = [nn.Conv2d(3, 1, 3, stride=3), nn.Sigmoid(), nn.Flatten(), nn.Linear(4, CLASSES)]
    with pytest.raises(NotApplicableError, match="192 numbers go into 0, there are 31 equations"):
        r_gap().check(seen_in(scenario_of(nn.Sequential(*layers), (3, 8, 8))))


def test_batches_and_several_steps_are_left_out() -> None:
    twice = scenario_of(smooth(), (3, 8, 8), examples=2)
    steps = replace(scenario_of(smooth(), (3, 8, 8)), training=LocalTraining(steps=2, rate=0.1))
    for scenario in (twice, steps):
        with pytest.raises(NotApplicableError, match="alone in its update"):
            r_gap().check(seen_in(scenario))
        assert not r_gap().reconstruct(seen_in(scenario), Seed(0)).found.any()
