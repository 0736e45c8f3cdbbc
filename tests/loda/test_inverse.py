"""Equation 6 of LODA where it gives pictures back: a network that does not see on which side of gray a pixel lies."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gradveil.defenses.loda.extractor import load_extractor
from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.inverse import Decoder, Way, outward_left_out
from gradveil.defenses.loda.obscure import Recipe, Scale, obscure, slope_at

SHAPE = (3, 6, 6)
GRAY = torch.full(SHAPE, 0.5, dtype=torch.float64)


class Sideless(nn.Module):
    """Puts out 6 (x - 1/2)^2. At LODA's end (z - x) (2 k^2 (z - 1/2) (z + x - 1) - c) is zero in every pixel: x = z, or
    the private pixel, and of the two the latter lies on gray's side."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1, bias=False)
        self.conv.weight.data = 6 * torch.eye(3)[:, :, None, None]

    def forward(self, x: Tensor) -> Tensor:
        return self.conv((x - 0.5) ** 2)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def encoded() -> tuple[Tensor, Tensor, Features]:
    """Private pictures, their encodings at rest, and the features that both share."""
    private = 0.15 + 0.2 * drawn(3, *SHAPE)
    features = Features(Sideless().double(), "all", SHAPE)
    encodings = obscure(private, 1 - private, features, Recipe(c=1.0, steps=1500, rate=0.004))
    return private, encodings, features


def rms(a: Tensor, b: Tensor) -> float:
    return (a - b).square().mean().sqrt().item()


def test_the_picture_comes_back_from_its_encoding(encoded) -> None:
    private, encodings, features = encoded
    assert rms(encodings, private) > 0.4
    found = Decoder(extract=features, rate=0.02).runs(encodings, GRAY, Way(c=1.0), (50, 300))
    assert rms(found[300], private) < 0.002
    assert rms(found[300], private) < rms(found[50], private) < rms(encodings, private)


def test_another_c_does_not_bring_it_back(encoded) -> None:
    private, encodings, features = encoded
    found = Decoder(extract=features, rate=0.02).runs(encodings, GRAY, Way(c=5.0), (300,))
    assert rms(found[300], private) > 0.1


def test_the_encoding_itself_solves_the_equation_for_every_c(encoded) -> None:
    _, encodings, features = encoded
    for c in (0.0, 1.0, 20.0):
        left = Decoder(extract=features).slope_left(encodings, c)
        assert torch.equal(left(encodings), torch.zeros(3, dtype=torch.float64))


def test_a_picture_is_decoded_alone_as_among_others(encoded) -> None:
    _, encodings, features = encoded
    decoder = Decoder(extract=features)
    together = decoder.runs(encodings, GRAY, Way(tv=0.1), (20,))[20]
    alone = torch.cat([decoder.runs(one[None], GRAY, Way(tv=0.1), (20,))[20] for one in encodings])
    assert (together - alone).abs().max() < 1e-9


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("units", ["unit", "normalized"])
def test_what_is_left_is_the_gradient_of_lodas_objective(reduce, units) -> None:
    features = Features(copy.deepcopy(load_extractor("lenet:untrained", SHAPE)), "all", SHAPE)
    private, encodings = drawn(2, *SHAPE).float(), (0.1 + 0.8 * drawn(2, *SHAPE, seed=1)).float()
    scale, recipe = Scale.of(units, features.model, private), Recipe(c=3.0, reduce=reduce)
    wanted = [feature.detach() for feature in features(private)]
    slope = slope_at(scale.inside(encodings), scale.inside(private), wanted, features, recipe, scale)
    left = Decoder(extract=features, reduce=reduce, scale=scale).slope_left(encodings, 3.0)(private)
    assert torch.allclose(left, slope.square().flatten(1).sum(1), rtol=1e-3)


def test_what_the_projection_holds_is_no_fault() -> None:
    slope = torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]).view(1, 1, 1, 6)
    encodings = torch.tensor([0.0, 0.0, 0.5, 0.5, 1.0, 1.0]).view(1, 1, 1, 6)
    assert outward_left_out(slope, encodings).flatten().tolist() == [-1.0, 0.0, -1.0, 1.0, 0.0, 1.0]


def test_features_alone_find_a_smooth_picture_with_the_same_features(encoded) -> None:
    private, encodings, features = encoded
    way = Way(aim="features", tv=0.0)
    start = GRAY - 0.05  # at gray itself the features have no slope
    found = Decoder(extract=features, rate=0.02).runs(encodings, start, way, (300,))[300]
    wanted, got = features(encodings)[0], features(found)[0]
    assert rms(got, wanted) < 0.01
    assert rms(found, private) < rms(encodings, private)
