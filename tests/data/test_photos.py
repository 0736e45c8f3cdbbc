"""The built-in photographs: the same pictures every time, the framed ones first."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.data import load
from gradveil.data.photos import PHOTOGRAPHS

CLASSES = len(PHOTOGRAPHS)


@pytest.fixture(autouse=True)
def cropped_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nothing is taken from what another test has cropped."""
    module = import_module("gradveil.data.photos")
    monkeypatch.setattr(module, "_picture", module._picture.__wrapped__)


def test_default_count_shape_and_range() -> None:
    data = load("photos")
    assert len(data) == 1304
    assert data.shape == (3, 32, 32)
    assert data.images.min() >= 0
    assert data.images.max() <= 1
    assert data.class_names[:2] == ("astronaut", "cat")
    assert data.targets.sum(0).tolist() == [163.0] * CLASSES
    assert len(torch.unique(data.images.flatten(1), dim=0)) == 1304  # no picture twice


def test_pictures_do_not_depend_on_how_many_are_asked_for() -> None:
    many, few = load("photos", count=60), load("photos", limit=25)
    assert torch.equal(many.images[:25], few.images)
    assert torch.equal(many.targets[:25], few.targets)
    assert (many.mean, many.std) == (few.mean, few.std)


def test_round_robin_over_photographs() -> None:
    labels = load("photos", limit=3 * CLASSES).targets.argmax(1)
    assert labels.tolist() == list(range(CLASSES)) * 3


def test_another_process_sees_the_same_pictures() -> None:
    code = "from gradveil.data import load; print(load('photos', limit=30).images.double().sum().item())"
    report = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(report) == load("photos", limit=30).images.double().sum().item()


def test_seed_moves_the_random_crops_alone() -> None:
    zero, one = load("photos", limit=40), load("photos", limit=40, seed=1)
    framed = 2 * CLASSES
    assert torch.equal(zero.images[:framed], one.images[:framed])
    assert not any(torch.equal(a, b) for a, b in zip(zero.images[framed:], one.images[framed:], strict=True))


def test_train_and_test_share_no_picture() -> None:
    test, train = load("photos", limit=80).images.flatten(1), load("photos", limit=80, split="train").images.flatten(1)
    assert (test[:, None] - train[None]).abs().amax(-1).min() > 0.01


def test_first_pictures_show_what_they_should() -> None:
    """Skin in the middle of the face, orange heart of the flower, black corners around the retina."""
    data = load("photos", limit=CLASSES)
    pictures = dict(zip(data.class_names, data.images, strict=True))
    red, green, blue = pictures["astronaut"][:, 13:19, 12:20].mean((1, 2)).tolist()
    assert red > green > blue > 0.3
    red, _, blue = pictures["flower"][:, 12:20, 12:20].mean((1, 2)).tolist()
    assert red > 3 * blue
    assert pictures["retina"][:, :3, :3].max() < 0.1
    assert pictures["retina"][0, 16, 16] > 0.4


def test_no_random_crop_is_nearly_blank() -> None:
    assert load("photos", limit=400).images.flatten(1).std(1).min() > 0.03


def test_size() -> None:
    assert load("photos", limit=3, size=64).shape == (3, 64, 64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tset"}, "photos: unknown split 'tset', did you mean 'test'"),
        ({"count": 0}, "photos: count is 0"),
        ({"size": -1}, "photos: size is -1"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("photos", **options)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from gradveil.data.photos import _open

    _open.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="photos: the package skimage is missing, install"):
        load("photos", limit=1)
