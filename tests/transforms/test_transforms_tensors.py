"""What transformations promise beside PIL's result: batches, precisions, gradients, nothing asked of the device."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from gradveil.core.errors import ConfigError
from gradveil.transforms.operation import OPERATIONS

MOVES = ["translateX", "translateY", "rotate"]
LINEAR = ["shearX", "shearY", "translateX", "translateY", "color", "contrast", "sharpness", "brightness"]


def pictures(*shape: int, low: int = 0, high: int = 256, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(dtype) / 255


def amounts(name: str, count: int) -> Tensor:
    """All ten magnitudes in turn, every other one negative where there is a sign."""
    sign = torch.tensor([1.0, -1.0 if OPERATIONS[name].signed else 1.0], dtype=torch.float64)
    every = torch.tensor(OPERATIONS[name].amounts, dtype=torch.float64)
    places = torch.arange(count)
    return every[places % 10] * sign[places // 10 % 2]


def gradient(name: str, images: Tensor, weights: Tensor, amount: Tensor) -> Tensor:
    images = images.clone().requires_grad_()
    (weights * OPERATIONS[name].apply(images, amount)).sum().backward()
    assert images.grad is not None
    return images.grad


def test_magnitudes_are_autoaugments():
    at = {name: operation.amounts for name, operation in OPERATIONS.items()}
    assert all(len(amounts) == 10 for amounts in at.values())
    assert at["posterize"] == (8, 8, 7, 7, 6, 6, 5, 5, 4, 4)
    assert math.isclose(at["translateX"][9] * 331, 150)
    assert [round(at["translateY"][m] * 32, 2) for m in (2, 3, 9)] == [3.22, 4.83, 14.5]
    assert (round(at["solarize"][1], 1), round(at["solarize"][4], 1)) == (227.6, 142.2)
    assert (at["rotate"][9], at["shearX"][9], at["color"][9]) == (30, 0.3, 0.5)
    unsigned = {name for name, operation in OPERATIONS.items() if not operation.signed}
    assert unsigned == {"rotate", "posterize", "solarize", "autocontrast", "equalize", "invert"}
    assert all(operation.name == name and operation.summary for name, operation in OPERATIONS.items())


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_picture_does_not_notice_the_others(name: str):
    images, each = pictures(20, 3, 13, 18), amounts(name, 20)
    together = OPERATIONS[name].apply(images, each)
    alone = [OPERATIONS[name].apply(images[i : i + 1], each[i : i + 1]) for i in range(20)]
    assert torch.equal(together, torch.cat(alone))
    order = torch.randperm(20)
    assert torch.equal(together[order], OPERATIONS[name].apply(images[order], each[order]))
    assert OPERATIONS[name].apply(images[:0], each[:0]).shape == (0, 3, 13, 18)


@pytest.mark.parametrize("name", OPERATIONS)
def test_precision_comes_back_and_does_not_matter(name: str):
    single, double = (pictures(20, 3, 16, 16, dtype=dtype) for dtype in (torch.float32, torch.float64))
    of_single, of_double = (OPERATIONS[name].apply(images, amounts(name, 20)) for images in (single, double))
    assert (of_single.dtype, of_double.dtype) == (torch.float32, torch.float64)
    assert torch.equal((of_single * 255).round().double(), (of_double * 255).round())


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_levels_as_a_file_would_give_them(name: str):
    images = pictures(20, 3, 16, 16)
    got = OPERATIONS[name].apply(images, amounts(name, 20))
    assert torch.equal(got, (got * 255).round() / 255)
    assert got.is_contiguous()


@pytest.mark.parametrize("name", OPERATIONS)
def test_memory_layout_and_input_are_left_alone(name: str):
    images = pictures(12, 3, 16, 20)
    before, strided = images.clone(), images.to(memory_format=torch.channels_last)
    each = amounts(name, 12)
    assert torch.equal(OPERATIONS[name].apply(strided, each), OPERATIONS[name].apply(images, each))
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_nothing_is_asked_of_the_device(name: str, channels: int):
    """Tensors without numbers: whoever reads one on the way, which makes a GPU wait, fails here."""
    images, each = torch.empty(7, channels, 9, 11, device="meta"), torch.empty(7, device="meta", dtype=torch.float64)
    got = OPERATIONS[name].apply(images, each)
    assert (got.shape, got.dtype) == (images.shape, images.dtype)


@pytest.mark.parametrize("name", MOVES)
def test_moves_have_exact_gradients(name: str):
    images = torch.rand(10, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda moved: OPERATIONS[name].apply(moved, amounts(name, 10)), (images,))


@pytest.mark.parametrize("name", LINEAR)
def test_gradient_of_a_linear_operation_is_its_transpose(name: str):
    """<w, T x> = <T' w, x>, up to the level that PIL cuts off. Middle levels, so that nothing is clipped."""
    images, each = pictures(20, 3, 12, 15, low=110, high=140), amounts(name, 20)
    weights = torch.randn(images.shape)
    rise = gradient(name, images, weights, each)
    there = (weights * OPERATIONS[name].apply(images, each)).flatten(1).sum(1)
    back = (rise * images).flatten(1).sum(1)
    lost = weights.abs().flatten(1).sum(1) * 1.01 / 255 * (2 if name in ("color", "contrast", "sharpness") else 1)
    assert ((there - back).abs() <= lost).all()
    assert rise.abs().sum() > 0


def test_gradient_of_color_and_contrast_by_hand():
    images, one = pictures(1, 3, 4, 4, low=100, high=150), torch.tensor([-0.5])
    luminance = torch.tensor([19595, 38470, 7471]) / 65536
    weights = torch.zeros_like(images)
    weights[0, 0, 1, 2] = 1  # one red pixel of the result
    of_color, of_contrast = (gradient(name, images, weights, one)[0] for name in ("color", "contrast"))
    expected = 0.5 * luminance
    expected[0] += 0.5
    assert torch.allclose(of_color[:, 1, 2], expected)
    assert of_color.count_nonzero() == 3
    assert torch.allclose(of_contrast[:, 0, 0], 0.5 * luminance / 16)


def test_clipped_pixels_have_no_gradient():
    images = torch.tensor([0.1, 0.5, 0.7, 1.0]).view(1, 1, 2, 2)
    rise = gradient("brightness", images, torch.ones_like(images), torch.tensor([0.5]))
    assert torch.allclose(rise.flatten(), torch.tensor([1.5, 1.5, 0, 0]))


@pytest.mark.parametrize(("name", "slope"), [("posterize", 1.0), ("equalize", 1.0), ("invert", -1.0)])
def test_gradient_of_tones_passes_straight_through(name: str, slope: float):
    images, weights = pictures(10, 3, 8, 8), torch.randn(10, 3, 8, 8)
    assert torch.allclose(gradient(name, images, weights, amounts(name, 10)), slope * weights, rtol=1e-6)


def test_gradient_of_solarize_turns_at_the_threshold():
    images = torch.tensor([0, 99, 100, 255]).view(1, 1, 2, 2) / 255
    rise = gradient("solarize", images, torch.ones_like(images), torch.tensor([100.0]))
    assert torch.allclose(rise.flatten(), torch.tensor([1.0, 1.0, -1.0, -1.0]))


def test_autocontrast_does_not_see_brightness_or_contrast():
    """It gives the same for a x + b, so its gradient has no part along the picture, nor along a constant."""
    images, weights = pictures(6, 3, 9, 9, low=40, high=200, dtype=torch.float64), torch.randn(6, 3, 9, 9)
    rise = gradient("autocontrast", images, weights.double(), amounts("autocontrast", 6))
    assert rise.abs().amax() > 1
    assert torch.allclose((rise * images).sum((2, 3)), torch.zeros(6, 3, dtype=torch.float64), atol=1e-4)
    assert torch.allclose(rise.sum((2, 3)), torch.zeros(6, 3, dtype=torch.float64), atol=1e-4)


@pytest.mark.parametrize("name", OPERATIONS)
def test_transforms_of_torch_func_see_through(name: str):
    images, each, weights = pictures(6, 3, 8, 9), amounts(name, 12)[-6:], torch.randn(6, 3, 8, 9)

    def score(image: Tensor, amount: Tensor, weight: Tensor) -> Tensor:
        return (OPERATIONS[name].apply(image[None], amount[None])[0] * weight).sum()

    expected = gradient(name, images, weights, each)
    assert torch.allclose(vmap(grad(score))(images, each, weights), expected, rtol=1e-4, atol=1e-5)
    step = torch.randn_like(images)
    slope = jvp(lambda moved: (OPERATIONS[name].apply(moved, each) * weights).sum(), (images,), (step,))[1]
    assert torch.allclose(slope, (expected * step).sum(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", OPERATIONS)
def test_one_picture_by_many_amounts_at_once(name: str):
    images, each = pictures(1, 3, 8, 9), amounts(name, 20)
    many = vmap(lambda amount: OPERATIONS[name].apply(images, amount[None])[0])(each)
    assert torch.equal(many, OPERATIONS[name].apply(images.expand(20, -1, -1, -1), each))


@pytest.mark.parametrize("name", ["color", "contrast"])
def test_luminance_needs_one_or_three_channels(name: str):
    with pytest.raises(ConfigError, match="2 channels"):
        OPERATIONS[name].apply(pictures(1, 2, 4, 4), torch.tensor([0.1]))


@pytest.mark.parametrize("name", OPERATIONS)
def test_numbers_outside_are_no_crash(name: str):
    """A search may leave [0, 1]. On a GPU an index out of range would end the process."""
    images = torch.full((2, 3, 4, 5), 1.3)
    images[0] = -0.2
    images[1, 0, 0, 0] = math.nan
    assert OPERATIONS[name].apply(images, amounts(name, 2)).shape == images.shape
