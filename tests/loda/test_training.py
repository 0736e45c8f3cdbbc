"""Extractors: on a CPU in float32, on a GPU in bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.train import extractor as training
from gradveil.train.extractor import ExtractorTraining, in_bf16, train_extractor


def test_bfloat16_is_for_gpus() -> None:
    assert [in_bf16(device) for device in ("cpu", "cuda", "cuda:1")] == [False, True, True]


def test_a_tenth_of_the_pictures_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, asked = load("photos", limit=20, size=16), {}

    def fit(model: nn.Module, data: Batch, **options: Any) -> nn.Module:
        asked.update(options, images=data.images)
        return model.eval()

    monkeypatch.setattr(training, "fit", fit)
    _, right = train_extractor(dataset, ExtractorTraining(model="lenet", epochs=3), "cpu")
    assert torch.equal(asked["images"], dataset.images[2:])
    assert asked["bf16"] is False
    assert asked["epochs"] == 3
    assert right in (0.0, 0.5, 1.0)
