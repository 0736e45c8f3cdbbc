"""FSIM against the textbook, written out in numpy pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scenes import drawn
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.metrics import METRICS
from gradveil.metrics.fsim import feature_similarity, reduce_size
from gradveil.metrics.phase_congruency import median


def textbook_phase(gray: np.ndarray) -> np.ndarray:
    """Kovesi's phase congruency with FSIM's settings, one frequency and one pixel at a time."""
    rows, columns = gray.shape
    spectrum = np.fft.fftshift(np.fft.fft2(gray))
    energy_all, amplitude_all = np.zeros_like(gray), np.zeros_like(gray)

    def step(k: int, size: int) -> float:
        middle = size // 2
        return (k - middle) / (size if size % 2 == 0 else size - 1)

    def response(y: int, x: int, wave: float, angle: float) -> float:
        v, u = step(y, rows), step(x, columns)
        radius = math.hypot(u, v)
        if radius == 0:
            return 0.0
        gabor = math.exp(-(math.log(radius * wave) ** 2) / (2 * math.log(0.55) ** 2))
        theta = math.atan2(-v, u)
        away = abs(math.atan2(math.sin(theta - angle), math.cos(theta - angle)))
        spread = math.pi / 4 / 1.2
        return gabor / (1 + (radius / 0.45) ** 30) * math.exp(-(away**2) / (2 * spread**2))

    for direction in range(4):
        waves, kernels, first = [], [], 0.0
        for scale in range(4):
            bank = [
                [response(y, x, 6 * 2**scale, direction * math.pi / 4) for x in range(columns)] for y in range(rows)
            ]
            filtered = np.fft.ifftshift(np.array(bank))
            waves.append(np.fft.ifft2(np.fft.ifftshift(spectrum) * filtered))
            kernels.append(np.fft.ifft2(filtered).real * math.sqrt(rows * columns))
            first = first or float((filtered**2).sum())
        even, odd = sum(w.real for w in waves), sum(w.imag for w in waves)
        length = np.sqrt(even**2 + odd**2) + 1e-4
        mean_even, mean_odd = even / length, odd / length
        energy = np.zeros_like(gray)
        for w in waves:
            energy += w.real * mean_even + w.imag * mean_odd - np.abs(w.real * mean_odd - w.imag * mean_even)
        power = -np.median(np.abs(waves[0]) ** 2) / math.log(0.5) / first
        squares = sum(float((k**2).sum()) for k in kernels)
        pairs = sum(float((kernels[i] * kernels[j]).sum()) for i in range(4) for j in range(i + 1, 4))
        tau = math.sqrt((2 * power * squares + 4 * power * pairs) / 2)
        threshold = (tau * math.sqrt(math.pi / 2) + 2 * math.sqrt((2 - math.pi / 2) * tau**2)) / 1.7
        energy_all += np.maximum(energy - threshold, 0)
        amplitude_all += sum(np.abs(w) for w in waves)
    return energy_all / amplitude_all


def textbook_edge(gray: np.ndarray) -> np.ndarray:
    """Scharr's gradient, black around the picture."""
    rows, columns = gray.shape
    out = np.zeros_like(gray)

    def level(y: int, x: int) -> float:
        return float(gray[y, x]) if 0 <= y < rows and 0 <= x < columns else 0.0

    for y in range(rows):
        for x in range(columns):
            weights = ((-1, 3), (0, 10), (1, 3))
            across = sum(w * (level(y + d, x + 1) - level(y + d, x - 1)) for d, w in weights) / 16
            down = sum(w * (level(y + 1, x + d) - level(y - 1, x + d)) for d, w in weights) / 16
            out[y, x] = math.hypot(across, down)
    return out


def textbook(a: np.ndarray, b: np.ndarray) -> float:
    """FSIM of [channel, y, x] in [0, 1], FSIMc if there are three channels."""
    a, b = 255 * a, 255 * b
    color = len(a) == 3

    def mixed(p: np.ndarray, r: float, g: float, blue: float) -> np.ndarray:
        return r * p[0] + g * p[1] + blue * p[2]

    gray = [mixed(p, 0.299, 0.587, 0.114) if color else p[0] for p in (a, b)]
    phase, edge = [textbook_phase(g) for g in gray], [textbook_edge(g) for g in gray]
    chroma = [[mixed(p, 0.596, -0.274, -0.322), mixed(p, 0.211, -0.523, 0.312)] for p in (a, b)] if color else []
    above = below = 0.0
    for y, x in np.ndindex(gray[0].shape):
        p, q = phase[0][y, x], phase[1][y, x]
        alike = (2 * p * q + 0.85) / (p * p + q * q + 0.85)
        p, q = edge[0][y, x], edge[1][y, x]
        alike *= (2 * p * q + 160) / (p * p + q * q + 160)
        if color:
            product = 1.0
            for c in range(2):
                p, q = chroma[0][c][y, x], chroma[1][c][y, x]
                product *= (2 * p * q + 200) / (p * p + q * q + 200)
            alike *= (complex(product) ** 0.03).real
        weight = max(phase[0][y, x], phase[1][y, x])
        above, below = above + alike * weight, below + weight
    return above / below


def scenery(count: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Blurred noise with an edge through it: something with features."""
    x = drawn(count, channels, height, width, seed=seed)
    x = torch.nn.functional.avg_pool2d(x, 5, 1, 2)
    x[..., width // 3 :] += 0.4
    return x.clamp(0, 1)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 32, 32), (3, 24, 37), (1, 17, 20)])
def test_against_the_textbook(shape):
    a, b = scenery(2, *shape), scenery(2, *shape, seed=1)
    b[1] = (0.7 * a[1] + 0.2 * drawn(*shape, seed=4)).clamp(0, 1)
    expected = [textbook(x, y) for x, y in zip(a.numpy(), b.numpy(), strict=True)]
    assert np.allclose(feature_similarity(a, b).numpy(), expected, atol=1e-9)


def test_opposite_colors_have_a_power_of_a_negative_number():
    a = scenery(1, 3, 16, 16)
    b = 1 - a
    a[:, 0], b[:, 0], a[:, 2], b[:, 2] = 1.0, 0.0, 0.0, 1.0
    assert feature_similarity(a, b).item() == pytest.approx(textbook(a[0].numpy(), b[0].numpy()), abs=1e-9)


def test_the_same_picture_is_1_and_nothing_is_above():
    a, b = scenery(4, 3, 32, 32), scenery(4, 3, 32, 32, seed=1)
    assert torch.equal(feature_similarity(a, a), torch.ones(4, dtype=torch.float64))
    assert bool(((feature_similarity(a, b) > 0) & (feature_similarity(a, b) < 1)).all())


def test_it_is_symmetric_and_each_picture_counts_for_itself():
    a, b = scenery(4, 3, 20, 28), scenery(4, 3, 20, 28, seed=1)
    assert torch.allclose(feature_similarity(a, b), feature_similarity(b, a), atol=1e-14)
    assert torch.allclose(feature_similarity(a, b)[2:3], feature_similarity(a[2:3], b[2:3]), atol=1e-12)


def test_more_noise_is_less_alike():
    a, noise = scenery(1, 3, 32, 32), drawn(1, 3, 32, 32, seed=8) - 0.5
    found = [feature_similarity(a, (a + scale * noise).clamp(0, 1)).item() for scale in (0.05, 0.2, 0.8)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.9 > found[2]


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (30, 31)])
def test_flat_pictures_have_no_features_and_still_a_number(size):
    black, gray = torch.zeros(1, 1, *size), torch.full((1, 1, *size), 0.3)
    assert feature_similarity(gray, gray).item() == 1.0
    assert 0 < feature_similarity(black, gray).item() <= 1
    assert 0 < feature_similarity(gray, drawn(1, 1, *size).float()).item() < 1


def test_large_pictures_are_reduced_as_by_a_convolution_and_every_second_pixel():
    x = drawn(1, 1, 7, 6)
    wide = torch.nn.functional.pad(x, (0, 1, 0, 1))
    mean = (wide[..., :-1, :-1] + wide[..., 1:, :-1] + wide[..., :-1, 1:] + wide[..., 1:, 1:]) / 4
    assert torch.allclose(reduce_size(x, 2), mean[..., ::2, ::2])
    assert torch.equal(reduce_size(x, 1), x)
    assert reduce_size(drawn(1, 1, 7, 6), 3).shape == (1, 1, 3, 2)


def test_the_median_of_an_even_number_is_between_two():
    assert median(torch.tensor([[[4.0, 1.0], [2.0, 9.0]]])).tolist() == [3.0]
    assert median(torch.tensor([[[4.0, 1.0, 2.0]]])).tolist() == [2.0]


def test_two_channels_are_neither_gray_nor_color():
    with pytest.raises(ConfigError, match="fsim"):
        feature_similarity(torch.zeros(1, 2, 8, 8), torch.zeros(1, 2, 8, 8))


def test_every_picture_gets_what_it_gets_alone():
    rng = torch.Generator().manual_seed(0)
    got, truth = torch.rand(2, 3, 30, 3, 24, 24, generator=rng)  # more than are looked at at once
    scores = METRICS["fsim"]().score(got, truth)
    assert scores.shape == (3, 30)
    for client, example in ((0, 0), (1, 17), (2, 29)):
        alone = feature_similarity(got[client, example][None], truth[client, example][None])
        torch.testing.assert_close(scores[client, example], alone[0])


def test_more_noise_scores_less():
    rng = torch.Generator().manual_seed(1)
    truth = torch.rand(1, 1, 48, 48, generator=rng).cumsum(-1) / 48
    noise = torch.randn(truth.shape, generator=rng)
    scores = [METRICS["fsim"]().score((truth + s * noise).clamp(0, 1), truth).item() for s in (0, 0.05, 0.2, 0.8)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1
