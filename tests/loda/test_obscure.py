"""Algorithm 1 of LODA: what it goes down, how far it steps, where it stays, and on what it does not depend."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.defenses.loda.extractor import load_extractor
from gradveil.defenses.loda.features import Features, Layers
from gradveil.defenses.loda.obscure import UNIT, Extract, Recipe, Scale, obscure, of_length_one, size, slope_at
from gradveil.models import MODELS

SHAPE = (3, 8, 8)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def small() -> nn.Module:
    return copy.deepcopy(load_extractor("lenet:untrained", SHAPE))


@pytest.fixture(scope="module")
def features() -> Features:
    return Features(small(), "all", SHAPE)


def equation_4(x: Tensor, private: Tensor, features: Extract, recipe: Recipe, scale: Scale = UNIT) -> Tensor:
    alike = [size(a - b, recipe.reduce) for a, b in zip(features(x), features(private), strict=True)]
    return torch.stack(alike).sum(0) - recipe.c * size(scale.inside(x) - scale.inside(private), recipe.reduce)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("units", ["unit", "normalized"])
def test_the_objective_falls_and_pixels_stay_in_range(features: Features, reduce, units) -> None:
    private, start = drawn(5, *SHAPE), drawn(5, *SHAPE, seed=1)
    recipe = Recipe(c=0.5, steps=60, rate=0.05, reduce=reduce)
    scale = Scale.of(units, features.model, private)
    end = obscure(private, start, features, recipe, scale)
    assert end.min() >= 0
    assert end.max() <= 1
    with torch.no_grad():
        before, after = (equation_4(x, private, features, recipe, scale) for x in (start, end))
    assert (after < before).all()


def test_what_is_descended_is_equation_4_by_hand(features: Features) -> None:
    private, x = drawn(2, *SHAPE), drawn(2, *SHAPE, seed=1).requires_grad_()
    conv1, conv2, conv3 = (layer for layer in features.model if isinstance(layer, nn.Conv2d))
    squash, normalize = torch.sigmoid, features.model[0]

    def g(pictures: Tensor) -> list[Tensor]:
        first = conv1(normalize(pictures))
        second = conv2(squash(first))
        return [first, second, conv3(squash(second))]

    squares = [(a - b) ** 2 for a, b in zip(g(x), g(private), strict=True)]
    apart = (x - private) ** 2
    for_sums = sum(square.sum((1, 2, 3)) for square in squares) - 20 * apart.sum((1, 2, 3))
    for_means = sum(square.mean((1, 2, 3)) for square in squares) - 20 * apart.mean((1, 2, 3))
    wanted = [feature.detach() for feature in features(private)]
    for value, recipe in ((for_sums, Recipe(c=20.0)), (for_means, Recipe(c=20.0, reduce="mean"))):
        (slope,) = torch.autograd.grad(value.sum(), x, retain_graph=True)
        assert torch.allclose(2 * slope_at(x, private, wanted, features, recipe), slope, rtol=1e-4, atol=1e-6)


def test_a_step_has_the_length_of_the_rate(features: Features) -> None:
    private, start = 0.4 + 0.2 * drawn(4, *SHAPE), 0.4 + 0.2 * drawn(4, *SHAPE, seed=1)
    after = obscure(private, start, features, Recipe(c=1.0, steps=1, rate=0.1))
    assert torch.allclose((after - start).flatten(1).norm(dim=1), torch.full((4,), 0.1), rtol=1e-4)
    wanted = [feature.detach() for feature in features(private)]
    slope = slope_at(start, private, wanted, features, Recipe(c=1.0))
    downhill = start - 0.1 * slope / slope.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert torch.allclose(after, downhill, atol=1e-6)


def test_no_slope_no_step() -> None:
    assert torch.equal(of_length_one(torch.zeros(2, *SHAPE)), torch.zeros(2, *SHAPE))


def test_pixels_go_to_the_edge_where_nothing_but_distance_counts(features: Features) -> None:
    """With c so large that features do not matter, every pixel ends at the end of the range away from its own."""
    private = torch.full((1, *SHAPE), 0.3)
    start = torch.where(drawn(1, *SHAPE) < 0.5, 0.1, 0.5)
    end = obscure(private, start, features, Recipe(c=1e6, steps=100, rate=0.5))
    assert torch.equal(end, torch.where(start > private, 1.0, 0.0))


def test_the_mean_of_squares_is_the_sum_over_the_count() -> None:
    x = drawn(3, *SHAPE)
    assert torch.allclose(size(x, "mean") * 192, size(x, "sum"))


@pytest.mark.parametrize("options", [{"c": -1.0}, {"rate": 0.0}, {"steps": 0}, {"c": float("nan")}])
def test_numbers_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        Recipe(**options)


# features


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [
        ("first2", [(12, 4, 4), (12, 2, 2)]),
        ("last1", [(12, 2, 2)]),
        ("all", [(12, 4, 4), (12, 2, 2), (12, 2, 2)]),
        ("last1+linear", [(12, 2, 2), (10,)]),
    ],
)
def test_the_layers_that_are_asked_for(layers: str, sizes) -> None:
    found = Features(small(), layers, SHAPE)(drawn(2, *SHAPE))
    assert [tuple(feature.shape[1:]) for feature in found] == sizes


def test_the_first_five_of_resnet18_are_its_stem_and_first_stage() -> None:
    model = MODELS["resnet18"](classes=3, shape=SHAPE)

    def chosen(layers: str) -> list[str]:
        features = Features(model, layers, SHAPE)
        named = {layer: name.split(".")[0] for name, layer in model.named_modules()}
        return [named[layer] for layer in features.layers]

    assert chosen("last5+linear") == [*["layer4"] * 5, "fc"]
    model = MODELS["resnet18"](classes=3, shape=SHAPE)
    assert chosen("first5") == ["stem", *["layer1"] * 4]
    model = MODELS["resnet18"](classes=3, shape=SHAPE)
    assert len(chosen("all")) == 20  # seventeen, and three of shortcuts


def test_layers_after_the_last_chosen_one_do_not_run() -> None:
    model = small()
    ran: list[str] = []
    hook = model.fc.register_forward_hook(lambda *_: ran.append("fc"))
    features = Features(model, "first1", SHAPE)
    ran.clear()
    features(drawn(1, *SHAPE))
    hook.remove()
    assert ran == []


@pytest.mark.parametrize("text", ["", "first", "first0", "5", "all+", "middle3", "first5+linear+linear"])
def test_layers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no layers"):
        Layers.parse(text)


def test_more_layers_than_there_are_is_said() -> None:
    with pytest.raises(ConfigError, match="first5 asks for 5 convolutional layers, the extractor has 3"):
        Features(small(), "first5", SHAPE)
    with pytest.raises(ConfigError, match="no convolutional layer"):
        Features(MODELS["mlp"](classes=3, shape=SHAPE), "all", SHAPE)
