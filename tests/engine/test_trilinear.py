"""Convolutions by three maps: the same values and slopes as torch's own, to second order, alone and under `vmap`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scenes import drawn, scene, seen_in, smooth
from torch import Tensor, nn
from torch.func import grad, vmap

from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.defenses import DEFENSES
from gradveil.engine import trilinear
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.matcher import OneTrial, Vmap
from gradveil.engine.trilinear import Trilinear

LAYERS = {
    "plain": {"kernel_size": 3, "padding": 1},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "uneven": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (0, 1)},
    "dilated": {"kernel_size": 3, "dilation": 2},
    "grouped": {"kernel_size": 3, "groups": 2, "padding": 1},
    "no bias": {"kernel_size": 1, "bias": False},
    "same": {"kernel_size": 3, "padding": "same"},
}
SIZES = {"groups": 10**18, "one by one": 0}


def slope_of_slopes(layer: nn.Conv2d, weight: Tensor, x: Tensor) -> Tensor:
    """By x, of the size of the slope by the weight: what an attack differentiates."""

    def loss(weight: Tensor, x: Tensor) -> Tensor:
        return layer._conv_forward(x, weight, layer.bias).square().tanh().sum()

    return grad(lambda x: grad(loss)(weight, x).square().sum())(x)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("way", SIZES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("few", [0, 4])
def test_second_order_slopes_are_torchs_own(
    name: str, way: str, shared: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trilinear, "LARGE", SIZES[way])
    monkeypatch.setattr(trilinear, "FEW", few)
    layer = nn.Conv2d(4, 6, **LAYERS[name]).double()
    weights = layer.weight.detach() if shared else drawn(3, *layer.weight.shape, seed=2)
    pictures = drawn(3, 2, 4, 7, 8, seed=1)

    def each(weight: Tensor, x: Tensor) -> Tensor:
        return slope_of_slopes(layer, weight, x)

    expected = torch.stack([each(weights if shared else weights[i], pictures[i]) for i in range(3)])
    with Trilinear():
        got = vmap(each, in_dims=(None if shared else 0, 0))(weights, pictures)
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("way", SIZES)
@pytest.mark.parametrize(
    "defense",
    [("none", {}), ("fedcdp", {"clip": 0.5, "noise": 0.0}), ("soteria", {"rate": 0.5}), ("precode", {"size": 4})],
)
def test_the_match_is_the_same(
    steps: int, way: str, defense: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trilinear, "LARGE", SIZES[way])
    name, options = defense
    known = Defense() if name == "none" else DEFENSES[name](**options)
    training = LocalTraining(steps=steps, rate=0.05)
    threat = ThreatModel(knows_defense=name != "none")
    seen = seen_in(scene(smooth(), 2, 4, training=training, threat=threat), known)
    match, fed = Vmap(OneTrial.of(seen, Cosine() if steps == 1 else L2())), drawn(2, 4, 3, 8, 8, seed=3)
    plain = match(fed)
    with Trilinear():
        by_maps = match(fed)
    assert all((a - b).norm() <= 1e-12 * b.norm() for a, b in zip(by_maps, plain, strict=True))


def test_every_convolution_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of modules and those that a model calls itself."""
    seen: list[torch.Size] = []
    apply = trilinear.Forward.apply
    monkeypatch.setattr(trilinear.Forward, "apply", lambda x, *rest: seen.append(x.shape) or apply(x, *rest))
    with Trilinear():
        nn.functional.conv2d(nn.Conv2d(1, 1, 1)(torch.zeros(2, 1, 3, 3)), torch.zeros(1, 1, 1, 1))
    assert len(seen) == 2
