"""Normalization in front of a model whose weights keep their names: copies, traces, back ends, closed forms, plants."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, MEAN, SHAPE, STD, drawn, one_hot, scene, seen_in, settled
from torch import Tensor, nn

from gradveil.attacks.april import april
from gradveil.attacks.linear import linear
from gradveil.attacks.r_gap import r_gap
from gradveil.attacks.rtf import rtf
from gradveil.attacks.spear import spear
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_model
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.backend import choose
from gradveil.engine.distance import Cosine
from gradveil.inspection import inspect
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.normalize import Normalize, NormalizesInput, constants_of, normalize_input, normalizes
from gradveil.models.start import weights_from
from gradveil.models.vit import vit


class Plain(nn.Module):
    """As somebody writes it who normalizes in the transform; it has a `mean` and a method `normalize` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((4, 1, 1), 0.1))
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.pool, self.fc = nn.AvgPool2d(2), nn.Linear(64, CLASSES)

    def normalize(self, x: Tensor) -> Tensor:
        return self.norm(x + self.mean)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(self.normalize(self.conv(x)))
        return self.fc(self.pool(x).flatten(1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def chain() -> nn.Module:
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(384, CLASSES)]
    return nn.Sequential(*layers)


def transformer() -> nn.Module:
    return vit(width=48, heads=2, classes=CLASSES, shape=SHAPE, depth=1, patch=4)


MODELS: dict[str, Callable[[], nn.Module]] = {"module": Plain, "sequential": perceptron, "chain": chain}


def plain(build: Callable[[], nn.Module]) -> nn.Module:
    with weights_from(5):
        return settled(build()).eval()


def wrapped(build: Callable[[], nn.Module]) -> nn.Module:
    return normalize_input(plain(build), MEAN, STD).double()


def in_front(build: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(Normalize(MEAN, STD), plain(build)).double().eval()


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_weights_keep_their_names_and_pictures_are_normalized(build: Callable[[], nn.Module]) -> None:
    model, images = wrapped(build), drawn(2, *SHAPE)
    assert list(model.state_dict()) == list(plain(build).state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain(build).named_parameters()]
    mean, std = (torch.tensor(x).double().view(-1, 1, 1) for x in (MEAN, STD))
    assert torch.allclose(model(images), plain(build)((images - mean) / std), rtol=1e-6)
    assert isinstance(model, type(plain(build)))
    assert torch.allclose(constants_of(model, 3)[1], torch.tensor(STD).double())


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_copies_pickles_and_traces_normalize_too(build: Callable[[], nn.Module]) -> None:
    model, images = wrapped(build), drawn(2, *SHAPE)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.fx.symbolic_trace(model)):
        assert torch.equal(other(images), model(images))
    assert isinstance(copy.deepcopy(model), NormalizesInput)
    assert not copy.deepcopy(model).training


def test_it_is_done_once_and_the_hash_of_a_model_knows_it() -> None:
    assert not normalizes(plain(Plain))
    assert normalizes(wrapped(Plain))
    assert hash_model(wrapped(Plain)) != hash_model(plain(Plain))
    with pytest.raises(ConfigError, match=r"^normalize: the model normalizes its pictures itself already"):
        normalize_input(in_front(Plain), MEAN, STD)


@pytest.mark.parametrize("backend", ["loop", "vmap", "sweep"])
@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_every_back_end_sees_the_normalized_pictures(build: Callable[[], nn.Module], backend: str) -> None:
    """The value and gradient of the same model with an explicit layer in front."""
    results = []
    for model, name in ((wrapped(build), backend), (in_front(build), "loop")):
        seen, distance = seen_in(scene(model, 2, 2)), Cosine()
        matcher = choose(seen, distance, name).matcher(seen, distance)
        results.append(matcher(drawn(2, 2, *SHAPE, seed=4)))
    for got, expected in zip(*results, strict=True):
        assert torch.allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=2, rate=0.1, batchnorm="batch")])
def test_updates_have_the_plain_names_and_the_normalized_values(training: LocalTraining) -> None:
    got, expected = (seen_in(scene(one(Plain), 2, 2, training=training)).update for one in (wrapped, in_front))
    assert list(got) == [name for name, _ in Plain().named_parameters()]
    for name, tensor in got.items():
        assert torch.allclose(tensor, expected[f"1.{name}"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("attack", "build", "examples"),
    [(linear(), perceptron, 1), (spear(), perceptron, 3), (r_gap(), chain, 1), (april(), transformer, 1)],
    ids=["linear", "spear", "r-gap", "april"],
)
def test_closed_forms_give_pixels_and_not_normalized_ones(
    attack: Attack, build: Callable[[], nn.Module], examples: int
) -> None:
    scenario = scene(wrapped(build), 2, examples, labels=one_hot(2, examples))
    got = attack.reconstruct(seen_in(scenario), Seed(0))
    private = scenario.private.images
    assert (peak_signal_to_noise(align(got.images, private, got.found).images, private) > 40).all()


@pytest.mark.parametrize("at", ["", "conv"])
def test_a_server_plants_in_front_and_inside(at: str) -> None:
    public = Batch(drawn(40, *SHAPE, seed=2), torch.zeros(40, CLASSES).double())
    scenario = replace(scene(wrapped(Plain), 2, 2, threat=ThreatModel(may_plant=True)), public=public)
    attack = rtf(neurons=64, at=at)
    seen, _ = observe(scenario, Defense(), attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0))
    private = scenario.private.images
    assert (peak_signal_to_noise(align(got.images, private, got.found).images, private) > 40).any()


def test_check_model_looks_at_the_normalized_activations() -> None:
    images = drawn(32, *SHAPE, seed=3)
    got, expected = (inspect(one(Plain).float(), images.float(), None) for one in (wrapped, in_front))
    assert [(m.check, m.statistic) for m in got.checked] == [
        (m.check, pytest.approx(m.statistic)) for m in expected.checked
    ]
    assert [m.layer for m in got.checked] == [m.layer.removeprefix("1.") for m in expected.checked]
