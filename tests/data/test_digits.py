"""The digits, against scikit-learn's own reader."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from gradveil.core.errors import ConfigError
from gradveil.data import load


def test_same_numbers_as_scikit_learn() -> None:
    reference: Any = load_digits()
    both = [load("digits", split=split, size=8) for split in ("train", "test")]
    images = torch.cat([data.images for data in both])
    assert torch.equal(images[:, 0] * 16, torch.from_numpy(reference.images).float())
    assert torch.cat([data.targets for data in both]).argmax(1).tolist() == reference.target.tolist()


def test_enlarged_pictures_keep_their_content() -> None:
    small, large = load("digits", size=8, limit=20), load("digits", limit=20)
    assert large.shape == (1, 32, 32)
    # a smooth enlargement: the mean of each 4x4 block stays near the pixel it came from
    assert (F.avg_pool2d(large.images, 4) - small.images).abs().mean() < 0.1


def test_channels_repeat() -> None:
    data = load("digits", channels=3, limit=5)
    assert data.shape == (3, 32, 32)
    assert torch.equal(data.images[:, 0], data.images[:, 2])
    assert len(data.mean) == len(data.std) == 3


@pytest.mark.parametrize("options", [{"channels": 2}, {"split": "val"}, {"limit": 0}])
def test_wrong_options(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="digits: "):
        load("digits", **options)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="install scikit-learn"):
        load("digits")
