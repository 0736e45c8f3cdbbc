"""`cocktail-party`: a large batch separated by independent components, made exact by the zeros of ReLU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, drawn, one_hot, seen_in, smooth
from torch import Tensor, nn

from gradveil.attacks.cocktail_party import cocktail_party, find_independent, make_exact
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
SIDE = 24
SHAPE = (3, SIDE, SIDE)


def scenario_of(model: nn.Module, examples: int, training: LocalTraining = FEDSGD) -> Scenario:
    pictures = photos(size=SIDE, limit=examples).images
    like = next(model.parameters())
    private = Batch(pictures.unsqueeze(0).to(like), one_hot(1, examples).to(like))
    threat = ThreatModel(knows_labels=False)
    return Scenario(name="party", model=model, private=private, names=("a",), training=training, threat=threat)


def perceptron() -> nn.Module:
    return MODELS["mlp"](classes=CLASSES, shape=SHAPE, mean=(0.5,) * 3, std=(0.2, 0.25, 0.3))


def without_relu() -> nn.Module:
    with weights_from(5):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 128), nn.Tanh(), nn.Linear(128, CLASSES))


def attack(scenario: Scenario) -> Reconstruction:
    return cocktail_party().reconstruct(seen_in(scenario), Seed(0))


def gain_over_blank(got: Reconstruction, scenario: Scenario) -> Tensor:
    private = scenario.private.images
    blank = private.mean((0, 1, 3, 4)).view(3, 1, 1).expand(private.shape)
    shown = align(got.images, private, got.found).images
    return peak_signal_to_noise(shown, private) - peak_signal_to_noise(blank, private)


@pytest.mark.parametrize("training", [FEDSGD, FEDAVG])
def test_with_relu_the_pictures_are_exact(training: LocalTraining) -> None:
    scenario = scenario_of(perceptron(), 16, training)
    got = attack(scenario)
    assert got.found.all()
    gain = gain_over_blank(got, scenario)
    assert (gain > 10).all()
    assert (gain > 60).sum() >= 14  # two of these photographs stay mixed with each other
    assert torch.equal(got.labels.sum(1), scenario.private.labels.sum(1))


def test_without_relu_they_are_better_than_blank() -> None:
    scenario = scenario_of(without_relu(), 8)
    got = attack(scenario)
    assert got.found.all()
    assert gain_over_blank(got, scenario).mean() > 3


def test_what_the_replay_does_not_confirm_is_not_found() -> None:
    scenario = scenario_of(perceptron(), 8)
    seen = seen_in(scenario)
    swapped = dict(seen.update) | {"fc1.bias": seen.update["fc1.bias"].flip(1)}
    for wrong in (seen_in(scenario, Gaussian(scale=1e-2)), blind(seen, Seed(1)), replace(seen, update=swapped)):
        got = cocktail_party().reconstruct(wrong, Seed(0))
        assert not got.found.any()
        assert got.loss.isfinite().all()


def test_models_with_nothing_to_separate_are_left_out() -> None:
    small = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 4), nn.ReLU(), nn.Linear(4, CLASSES))
    with pytest.raises(NotApplicableError, match="4 units, too few for 8 pictures"):
        cocktail_party().check(seen_in(scenario_of(small, 8)))
    convolutional = Scenario(name="s", model=smooth(), private=Batch(drawn(1, 2, 3, 8, 8), one_hot(1, 2)), names=("a",),
                             training=FEDSGD, threat=ThreatModel())  # fmt: skip
    with pytest.raises(NotApplicableError, match="no linear layer"):
        cocktail_party().check(seen_in(convolutional))


def test_its_option_is_checked() -> None:
    with pytest.raises(ConfigError, match="rounds must be"):
        cocktail_party(rounds=0)


@pytest.mark.parametrize("rare", [True, False])
def test_independent_signals_come_apart(rare: bool) -> None:
    sources = (drawn(4, 4000, seed=3) - 0.5).sign() * drawn(4, 4000, seed=4).log()  # Laplace
    mixed = drawn(4, 4, seed=5) @ sources
    found = find_independent(mixed, Seed(0).rng(), rare) @ mixed
    alike = torch.corrcoef(torch.cat([found, sources]))[:4, 4:].abs()
    assert (alike.amax(1) > 0.99).all()
    assert len(alike.argmax(1).unique()) == 4


def test_a_column_is_found_from_nearby() -> None:
    left = drawn(60, 6, seed=7) - 0.5
    column = torch.nn.functional.normalize(drawn(6, seed=8), dim=0)
    left[:30] -= (left[:30] @ column).unsqueeze(1) * column
    near = column + 0.1 * (drawn(6, seed=9) - 0.5)
    assert (make_exact(near, left) @ column).abs() > 1 - 1e-9
