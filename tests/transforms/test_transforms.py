"""Every transformation against PIL itself, in whole levels, on noise and on the pictures that break things."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from pil_transforms import PIL
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.transforms.operation import OPERATIONS
from gradveil.transforms.pipeline import CropAndFlip, crop, flip

SIZES = [(32, 32), (28, 28), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (1, 7), (17, 1), (3, 40), (24, 37), (45, 20)]


def edge_cases(height: int, width: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Height x width x 3 each."""
    down, right = np.mgrid[:height, :width]
    board = (down + right) % 2
    flat = np.stack([down * 0 + 40, down * 0 + 200, board * 255], 2)  # two channels of one level each
    one = np.zeros((height, width, 3), int)
    one[height // 2, width // 2] = (255, 1, 128)
    few = rng.choice([0, 3, 250, 255], size=(height, width, 3))
    narrow = rng.integers(100, 104, size=(height, width, 3))
    ramp = np.stack([right * 255 // max(width - 1, 1), down * 255 // max(height - 1, 1), (right + down) * 3 % 256], 2)
    grey = np.repeat(board[..., None] * 255, 3, 2)
    constant = [np.full((height, width, 3), level) for level in (0, 1, 127, 128, 255)]
    return [flat, one, 255 - one, few, narrow, ramp, grey, 255 - grey, *constant]


def pictures_of(size: tuple[int, int]) -> np.ndarray:
    """17 of one size, so 204 of all: 13 edge cases, three of noise and a dark one."""
    rng = np.random.default_rng([7, *size])
    noise = rng.integers(0, 256, size=(3, *size, 3))
    return np.stack([*edge_cases(*size, rng), *noise, noise[0] // 5 + 30]).astype(np.uint8)


def tensor_of(pictures: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).to(dtype) / 255


def array_of(images: Tensor) -> np.ndarray:
    return (images * 255).round().permute(0, 2, 3, 1).byte().numpy()


def picture_of(array: np.ndarray) -> Image.Image:
    return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)


def through_pil(name: str, pictures: np.ndarray, amount: float) -> np.ndarray:
    return np.stack([np.asarray(PIL[name](picture_of(each), amount)) for each in pictures]).reshape(pictures.shape)


def settings(name: str) -> list[float]:
    signs = (1, -1) if OPERATIONS[name].signed else (1,)
    return sorted({sign * amount for amount in OPERATIONS[name].amounts for sign in signs})


def through_ours(name: str, pictures: np.ndarray, amounts: list[float]) -> np.ndarray:
    """All amounts in one call: [amount, picture, height, width, channel]."""
    images = tensor_of(pictures).repeat(len(amounts), 1, 1, 1)
    each = torch.tensor(amounts, dtype=torch.float64).repeat_interleave(len(pictures))
    return array_of(OPERATIONS[name].apply(images, each)).reshape(len(amounts), *pictures.shape)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_result_is_pils_to_the_last_level(name: str, channels: int):
    for size in SIZES:
        pictures = pictures_of(size)[..., :channels]
        got = through_ours(name, pictures, settings(name))
        for amount, ours in zip(settings(name), got, strict=True):
            assert np.array_equal(ours, through_pil(name, pictures, amount)), (size, amount)


@pytest.mark.parametrize("name", OPERATIONS)
def test_grey_picture_of_one_channel_is_that_of_three(name: str):
    """ATS turns the grey pictures of Fashion-MNIST into three channels and back."""
    grey = pictures_of((28, 28))[..., :1]
    for amount in settings(name)[::3]:
        colored = through_pil(name, grey.repeat(3, 3), amount)
        back = np.stack([np.asarray(Image.fromarray(each).convert("L")) for each in colored])
        assert np.array_equal(through_ours(name, grey, [amount])[0, ..., 0], back)


@pytest.mark.parametrize("name", OPERATIONS)
def test_large_picture(name: str):
    """Larger than 256 x 256: sums of a whole picture no longer fit float32, nor counts a byte."""
    bright = np.random.default_rng(1).integers(180, 256, size=(1, 310, 290, 3)).astype(np.uint8)
    amount = settings(name)[-2:][0]
    assert np.array_equal(through_ours(name, bright, [amount])[0], through_pil(name, bright, amount))


@pytest.mark.parametrize("name", OPERATIONS)
def test_any_amount_between_the_ten(name: str):
    pictures = pictures_of((24, 37))
    low, high = min(settings(name)), max(settings(name))
    for amount in np.random.default_rng(3).uniform(low, high, 20):
        amount = float(round(amount) if name == "posterize" else amount)
        assert np.array_equal(through_ours(name, pictures, [amount])[0], through_pil(name, pictures, amount))


def test_all_pairs_of_ends_stretch_as_in_pil():
    """Autocontrast ends at 254 for some pairs of lowest and highest level and at 255 for others."""
    pairs = np.array([(low, high) for low in range(256) for high in range(low, 256)], np.uint8)
    pictures = pairs[:, None, :, None]
    ours = through_ours("autocontrast", pictures, [0.0])[0]
    sample = np.random.default_rng(5).choice(len(pairs), 3000, replace=False)
    assert np.array_equal(ours[sample], through_pil("autocontrast", pictures[sample], 0.0))


@pytest.mark.parametrize("padding", [4, 1])
@pytest.mark.parametrize("size", [(32, 32), (5, 9)])
def test_crop_and_flip_are_pils(size: tuple[int, int], padding: int):
    pictures = pictures_of(size)
    drawn = CropAndFlip.draw(len(pictures), Seed(0).rng(), padding)
    got = array_of(drawn.apply(tensor_of(pictures), padding))
    for each, ours, top, left, flipped in zip(pictures, got, *(part.tolist() for part in drawn), strict=True):
        padded = ImageOps.expand(Image.fromarray(each), padding, fill=0)
        cropped = padded.crop((left, top, left + size[1], top + size[0]))
        assert np.array_equal(ours, np.asarray(ImageOps.mirror(cropped) if flipped else cropped))


def test_crops_and_flips_are_drawn_evenly_and_picture_by_picture():
    drawn = CropAndFlip.draw(9000, Seed(0).rng())
    for offsets in (drawn.top, drawn.left):
        counts = torch.bincount(offsets, minlength=9)
        assert len(counts) == 9
        assert 850 < counts.min() <= counts.max() < 1150
    assert 4300 < drawn.flipped.sum() < 4700
    few = CropAndFlip.draw(3, Seed(0).rng())
    assert all(torch.equal(a, b[:3]) for a, b in zip(few, drawn, strict=True))


def test_crop_in_the_middle_and_two_flips_change_nothing():
    images = tensor_of(pictures_of((24, 37)))
    middle, yes = torch.full((len(images),), 4), torch.ones(len(images), dtype=torch.bool)
    assert torch.equal(crop(images, middle, middle), images)
    assert torch.equal(flip(flip(images, yes), yes), images)
    assert torch.equal(flip(images, ~yes), images)
