"""Features in bfloat16: encodings as far and features as near as in float32, and what stays float32."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from gradveil.defenses.loda.extractor import load_extractor
from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.half import in_half
from gradveil.defenses.loda.obscure import Extract, Recipe, Scale, obscure, size
from gradveil.defenses.loda.starts import public_pool

SHAPE = (3, 16, 16)
C = {"first5": 20.0, "all": 30.0}


def features(layers: str) -> Features:
    return Features(copy.deepcopy(load_extractor("convnet8:untrained", SHAPE)), layers, SHAPE)


def decibels(a: Tensor, b: Tensor) -> Tensor:
    return -10 * (a - b).square().mean((1, 2, 3)).log10()


def far(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return torch.stack([size(x - y, "sum") for x, y in zip(a, b, strict=True)]).sum(0).sqrt()


@pytest.mark.parametrize("layers", ["first5", "all"])
def test_encodings_are_as_far_and_features_as_near(layers: str) -> None:
    private, starts = public_pool("photos", SHAPE)[:8].split(4)
    exact = features(layers)
    scale, recipe = Scale.of("normalized", exact.model, private), Recipe(c=C[layers], steps=60, rate=0.2)

    def made_by(extract: Extract) -> Tensor:
        return obscure(private, starts, extract, recipe, scale)

    plain, half = made_by(exact), made_by(in_half(features(layers)))
    assert half.dtype == torch.float32
    assert not torch.equal(half, plain)
    assert (decibels(half, private) - decibels(plain, private)).abs().max() < 0.2
    with torch.no_grad():
        wanted = exact(private)
        assert torch.allclose(far(exact(half), wanted), far(exact(plain), wanted), rtol=0.02)


def test_products_are_rounded_and_statistics_are_not() -> None:
    rounded = features("all")
    got = in_half(rounded)(torch.rand(1, *SHAPE, requires_grad=True))
    assert {feature.dtype for feature in got} == {torch.bfloat16}
    norms = [layer for layer in rounded.model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert norms
    assert all(layer.running_mean is not None and layer.running_mean.dtype == torch.float32 for layer in norms)
