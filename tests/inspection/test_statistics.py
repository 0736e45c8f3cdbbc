"""Each statistic where its value is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gradveil.inspection.activations import reaches
from gradveil.inspection.against_reference import share_replaced
from gradveil.inspection.bias_ladder import bias_ladder, evenness
from gradveil.inspection.dominance import largest_shares
from gradveil.inspection.front_layer import front_layer
from gradveil.inspection.half_negative import half_negative
from gradveil.inspection.one_scalar import correlations
from gradveil.inspection.proportional_rows import LARGE, SMALL, cosine_for
from gradveil.inspection.single_sample import single_sample
from gradveil.inspection.weight_rows import distinct, row_layers


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_evenness_of_independent_numbers_is_two_ln_two_minus_one() -> None:
    gaps = numbers(200_000).double().sort().values.diff()
    assert evenness(gaps) == pytest.approx(0.3863, abs=0.004)


def test_evenness_of_a_ladder_is_one() -> None:
    assert evenness(torch.arange(50).double().diff()) == 1.0
    levels = (torch.arange(500).double() + 0.5) / 500
    assert evenness(torch.special.ndtri(levels).diff()) > 0.98


def test_biases_on_a_grid_are_not_taken_for_a_ladder() -> None:
    layer = nn.Linear(20, 200)
    layer.bias.data = (numbers(200) * 20).round() / 20
    assert list(bias_ladder(layer)) == []


def test_signs_by_chance_have_variance_one() -> None:
    layer = nn.Linear(400, 2000)
    layer.weight.data = numbers(2000, 400)
    (measured,) = half_negative(layer)
    assert measured.details["count_variance"] == pytest.approx(1, abs=0.1)
    assert measured.details["sum_variance"] == pytest.approx(1, abs=0.1)
    assert not measured.found


def test_half_negative_rows_of_other_numbers_have_the_variance_of_half_normals() -> None:
    """Sums of |N(0, 1)| vary by 1 - 2 / pi where signs by chance vary by 1."""
    layer = nn.Linear(400, 2000)
    signs = torch.cat([torch.ones(200), -torch.ones(200)])[torch.rand(2000, 400).argsort(1)]
    layer.weight.data = numbers(2000, 400).abs() * signs
    (measured,) = half_negative(layer)
    assert measured.details["sum_variance"] == pytest.approx(1 - 2 / torch.pi, abs=0.05)
    assert measured.details["count_variance"] == 0
    assert measured.found


def test_the_cosine_asked_for_grows_as_inputs_get_fewer() -> None:
    assert cosine_for(SMALL[0]) == pytest.approx(SMALL[1])
    assert cosine_for(LARGE[0]) == cosine_for(100_000) == pytest.approx(LARGE[1])
    asked = [cosine_for(inputs) for inputs in (2, 9, 27, 64, 256)]
    assert asked == sorted(asked, reverse=True)


def test_rows_come_with_the_numbers_that_stand_for_a_bias() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 1))
    first, second = row_layers(model)
    assert (first.rows.shape, first.offsets.shape) == ((8, 27), (8, 2))
    assert (second.rows.shape, second.offsets.shape) == ((12, 8), (12, 1))


def test_distinct_keeps_the_first_of_equals_and_no_dead_row() -> None:
    layer = nn.Linear(5, 10)
    layer.weight.data[3], layer.bias.data[3] = layer.weight.data[1], layer.bias.data[1]
    layer.weight.data[7] = 0
    (rows,) = row_layers(layer)
    kept = distinct(rows).rows
    assert torch.equal(kept, rows.rows[[0, 1, 2, 4, 5, 6, 8, 9]])


def test_the_share_of_the_largest_picture_does_not_depend_on_its_loss() -> None:
    strength = numbers(6, 20).abs().double()
    louder = strength * torch.tensor([1.0, 50, 1, 1e-3, 1, 1]).double()[:, None]
    assert torch.allclose(largest_shares(strength), largest_shares(louder))
    assert torch.equal(largest_shares(torch.eye(4).double()), torch.ones(4).double())


def test_neurons_that_one_picture_has_alone() -> None:
    """Pictures are unit vectors and the layer is the identity: each neuron fires for its own picture."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    first = model[1]
    assert isinstance(first, nn.Linear)
    first.weight.data, first.bias.data = torch.eye(32), torch.full((32,), -0.5)
    alone, _ = single_sample(r for r in reaches(model, torch.eye(32).view(32, 1, 4, 8)) if r.name == "1.weight")
    assert (alone.statistic, alone.found) == (1.0, True)


def test_pictures_are_looked_at_in_chunks_without_a_difference() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(96, 3))
    images = torch.rand(40, 1, 6, 8)
    whole, part = reaches(model, images), reaches(model, images[16:32])
    for one, other in zip(whole, part, strict=True):
        assert (one.name, one.places) == (other.name, other.places)
        assert torch.allclose(one.strength[16:32], other.strength)
        assert torch.allclose(one.signal[16:32], other.signal)


def test_pull_is_the_gradient_by_the_bias() -> None:
    """Of a convolution too, whose bias is added at every place."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(96, 3))
    images = torch.rand(8, 1, 6, 8)
    reached = reaches(model, images)[0]
    bias = model[0].bias
    last = reaches(model, images)[1]
    direction = last.pull[0].float()
    for picture in range(8):
        (gradient,) = torch.autograd.grad((model(images[picture : picture + 1]) * direction).sum(), bias)
        assert torch.allclose(reached.pull[picture].float(), gradient, atol=1e-5)


def test_constant_neurons_correlate_with_none() -> None:
    signal = torch.stack([torch.arange(9.0), -torch.arange(9.0), torch.ones(9)], 1)
    assert torch.allclose(correlations(signal).abs(), torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 0]]), atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((nn.Flatten(), nn.Linear(108, 108), nn.Unflatten(1, (3, 6, 6)), nn.Conv2d(3, 4, 3)), True),
        ((nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2)), False),
        ((nn.Flatten(), nn.Linear(108, 64), nn.ReLU(), nn.Linear(64, 2)), False),
        ((nn.Conv2d(3, 75, (12, 12)), nn.Flatten(), nn.Unflatten(1, (3, 5, 5)), nn.Conv2d(3, 4, 3)), True),
    ],
)
def test_a_layer_on_all_pixels_before_convolutions(layers: tuple[nn.Module, ...], expected: bool) -> None:
    assert any(m.found for m in front_layer(nn.Sequential(*layers), None)) is expected


def test_replaced_rows() -> None:
    before = numbers(20, 50)
    assert share_replaced(before, before) == 0
    assert share_replaced(3 * before, before) == 0
    assert share_replaced(11 * before, before) == 1
    assert share_replaced(torch.cat([before[:10], numbers(10, 50, seed=1)]), before) == 0.5
    assert share_replaced(torch.zeros(20, 50), before) == 0
