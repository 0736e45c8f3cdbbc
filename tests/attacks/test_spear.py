"""`spear`: a batch off a linear layer and its ReLU, exactly or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, drawn, one_hot, perceptron, seen_in, smooth
from torch import Tensor, nn

from gradveil.attacks.spear import spear
from gradveil.audit.controls import blind
from gradveil.core.attack import Reconstruction
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.gaussian import Gaussian
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.models.start import weights_from

FEDSGD = LocalTraining()
FEDAVG = LocalTraining(steps=3, rate=0.01)


class Behind(nn.Module):
    """Its linear layer sees the picture through a convolution that mixes and overlaps, and a swap of channels."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv = nn.Conv2d(channels, 2 * channels + 2, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear((2 * channels + 2) * height * width, 96), nn.Linear(96, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv((x.flip(1) - 0.5) / 0.25).permute(0, 2, 3, 1)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def behind(shape: tuple[int, int, int]) -> nn.Module:
    with weights_from(7):
        return Behind(shape).double()


def scenario_of(model: nn.Module, pictures: Tensor, training: LocalTraining = FEDSGD) -> Scenario:
    clients, examples = pictures.shape[:2]
    like = next(model.parameters())
    private = Batch(pictures.to(like), one_hot(clients, examples, CLASSES).to(like))
    names = tuple("abcdefgh"[:clients])
    return Scenario(name="s", model=model, private=private, names=names, training=training, threat=ThreatModel())


def quality(got: Reconstruction, scenario: Scenario) -> Tensor:
    private = scenario.private.images
    return peak_signal_to_noise(align(got.images, private, got.found).images, private)


@pytest.mark.parametrize("training", [FEDSGD, FEDAVG])
@pytest.mark.parametrize("examples", [1, 2, 3, 8])
def test_every_picture_of_a_batch_is_exact(examples: int, training: LocalTraining) -> None:
    """Labels repeat, and nobody told them."""
    scenario = scenario_of(perceptron(), drawn(2, examples, 3, 8, 8, seed=6), training)
    scenario = replace(scenario, threat=ThreatModel(knows_labels=False))
    got = spear().reconstruct(seen_in(scenario), Seed(0))
    assert got.found.all()
    assert (quality(got, scenario) > 80).all()
    assert torch.equal(got.labels.sum(1), scenario.private.labels.sum(1))


def test_photographs_in_float32() -> None:
    """They look alike, so the same units sleep through many of them."""
    pictures = photos(size=16, limit=8).images.unsqueeze(0)
    model = MODELS["mlp"](classes=CLASSES, shape=(3, 16, 16), mean=(0.5,) * 3, std=(0.25,) * 3)
    scenario = scenario_of(model, pictures)
    assert (quality(spear().reconstruct(seen_in(scenario), Seed(0)), scenario) > 60).all()


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 6, 10)])
def test_a_layer_whose_input_leads_back_to_the_picture(shape: tuple[int, int, int]) -> None:
    scenario = scenario_of(behind(shape), drawn(2, 4, *shape, seed=8))
    assert (quality(spear().reconstruct(seen_in(scenario), Seed(0)), scenario) > 60).all()


def test_what_the_replay_does_not_confirm_is_not_found() -> None:
    scenario = scenario_of(perceptron(), drawn(2, 4, 3, 8, 8, seed=6))
    seen = seen_in(scenario)
    swapped = dict(seen.update) | {"2.bias": seen.update["2.bias"].flip(1)}
    for wrong in (seen_in(scenario, Gaussian(scale=1e-3)), blind(seen, Seed(1)), replace(seen, update=swapped)):
        got = spear().reconstruct(wrong, Seed(0))
        assert not got.found.any()
        assert got.loss.isfinite().all()


def smooth_perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Sigmoid(), nn.Linear(32, CLASSES)).double()


@pytest.mark.parametrize("model", [smooth, smooth_perceptron])
def test_what_has_no_such_layer_is_left_out(model) -> None:
    with pytest.raises(NotApplicableError, match="no linear layer that sees the picture itself and that ReLU follows"):
        spear().check(seen_in(scenario_of(model(), drawn(1, 2, 3, 8, 8, seed=6))))


def test_too_many_pictures_are_left_out() -> None:
    seen = seen_in(scenario_of(perceptron(), drawn(1, 30, 3, 8, 8, seed=6)))
    with pytest.raises(NotApplicableError, match="at most 20 pictures"):
        spear().check(seen)
    assert not spear().reconstruct(seen, Seed(0)).found.any()


def test_its_option_is_checked() -> None:
    with pytest.raises(ConfigError, match="samples must be"):
        spear(samples=0)
