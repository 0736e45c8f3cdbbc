"""An imprint deep in a model: the layers before it hand the picture on, or one line says that they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scenes import CLASSES, MEAN, STD, drawn, one_hot, settled, usual
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.imprint.insertion import place_in, site
from gradveil.attacks.rtf import rtf
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.resnet20 import resnet20_4
from gradveil.models.vgg import lenet5

SHAPE = (3, 8, 8)


def residual() -> nn.Module:
    return settled(resnet20_4(classes=CLASSES, shape=SHAPE, mean=MEAN, std=STD))


def plain() -> nn.Module:
    return lenet5(classes=CLASSES, shape=SHAPE).double()


DEEP = {"usual": (usual, "pool1"), "three blocks": (residual, "layer2"), "in a block": (residual, "layer1.1.conv2"),
        "not normalized": (plain, "stage1.1")}  # fmt: skip


def psnr_of(attack: Attack, model: nn.Module) -> Tensor:
    pictures = photos(size=8).images.double()[::9]
    private = Batch(pictures[:4].unsqueeze(0), one_hot(1, 4))
    public = Batch(pictures[40:], torch.zeros(len(pictures) - 40, CLASSES).double())
    threat = ThreatModel(may_plant=True)
    scenario = Scenario(name="deep", model=model, private=private, names=("c0",), threat=threat, public=public)
    seen, truth = observe(scenario, Defense(), attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0))
    return peak_signal_to_noise(align(got.images, truth.private.images, got.found).images, truth.private.images)


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("options", [{}, {"sparse": True, "functional": "random"}])
def test_pictures_are_read_behind_other_layers(name: str, options: dict[str, Any]) -> None:
    make, at = DEEP[name]
    found = psnr_of(rtf(neurons=256, at=at, **options), make())
    assert (found > 100).sum() >= 3


def test_traps_too() -> None:
    assert (psnr_of(cah(neurons=256, examples=4, at="pool1"), usual()) > 100).sum() >= 2


@pytest.mark.parametrize("name", DEEP)
def test_what_arrives_is_the_picture_scaled_and_shifted(name: str) -> None:
    make, at = DEEP[name]
    opened, place = site(make(), SHAPE, at, "rtf", Seed(0))
    arrived: list[Tensor] = []
    opened.get_submodule(at).register_forward_pre_hook(lambda _layer, given: arrived.append(given[0]))
    pictures = drawn(2, *SHAPE, seed=4)
    opened.eval()(pictures)
    assert place.beside == arrived[0][0, 3:].numel() > 0
    assert torch.allclose(place.pictures(arrived[0].flatten(1)), pictures, atol=1e-6)


def test_other_filters_and_the_model_given_stay_as_they_were() -> None:
    model = usual()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    opened, _ = site(model, SHAPE, "pool1", "rtf", Seed(0))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    after = opened.state_dict()
    assert torch.equal(after["conv1.weight"][3:], before["conv1.weight"][3:])
    assert torch.equal(after["conv2.weight"], before["conv2.weight"])


def test_where_the_picture_arrives_anyway_nothing_is_changed() -> None:
    model = usual()
    assert site(model, SHAPE, "conv1", "rtf", Seed(0))[0] is model


@pytest.mark.parametrize(("make", "at", "size"), [(usual, "conv2", "6 x 4 x 4"), (residual, "layer3", "128 x 4 x 4")])
def test_a_smaller_picture_is_refused_with_its_size(make: Any, at: str, size: str) -> None:
    with pytest.raises(NotApplicableError, match=f"sees features and not the pictures \\({size} of 3 x 8 x 8\\)"):
        site(make(), SHAPE, at, "rtf", Seed(0))


def test_features_of_the_same_size_are_no_picture() -> None:
    with pytest.raises(NotApplicableError, match="sees features"):
        place_in(usual(), SHAPE, "norm1", "rtf", Seed(0))
