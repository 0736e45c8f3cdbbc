"""SSIM against scikit-image, and at the edges."""

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity

from gradveil.metrics import METRICS

SCORE = METRICS["ssim"]().score


def reference(truth, got):
    return structural_similarity(
        truth.double().numpy(),
        got.double().numpy(),
        gaussian_weights=True,
        use_sample_covariance=False,
        sigma=1.5,
        channel_axis=0,
        data_range=1,
    )


@pytest.mark.parametrize("shape", [(1, 11, 11), (1, 28, 28), (3, 32, 32), (3, 17, 40)])
@pytest.mark.parametrize("noise", [0.01, 0.2, 1.0])
def test_equals_scikit_image(shape, noise):
    rng = torch.Generator().manual_seed(1)
    truth = torch.rand(2, 3, *shape, generator=rng)
    truth[0, 0] = 0.3  # a constant picture
    got = (truth + noise * torch.randn(truth.shape, generator=rng)).clamp(0, 1)
    want = [[reference(t, g) for t, g in zip(*pair, strict=True)] for pair in zip(truth, got, strict=True)]
    np.testing.assert_allclose(SCORE(got, truth).numpy(), want, atol=1e-9)


@pytest.mark.parametrize("side", [1, 2, 6, 10, 11, 32])
def test_identical_is_one_at_every_size(side):
    picture = torch.rand(2, 3, side, side)
    torch.testing.assert_close(SCORE(picture, picture), torch.ones(2, dtype=torch.float64))


def test_constant_pictures_compare_by_level_alone():
    got, truth = torch.full((1, 1, 16, 16), 0.2), torch.full((1, 1, 16, 16), 0.8)
    want = (2 * 0.2 * 0.8 + 1e-4) / (0.2**2 + 0.8**2 + 1e-4)
    assert SCORE(got, truth).item() == pytest.approx(want, abs=1e-6)
    assert SCORE(got[..., :1, :1], truth[..., :1, :1]).item() == pytest.approx(want, abs=1e-6)


def test_an_inverted_picture_is_unlike():
    picture = torch.rand(1, 3, 32, 32)
    assert SCORE(1 - picture, picture).item() < -0.5


def test_not_a_number_stays_so_and_spoils_no_neighbor():
    truth = torch.rand(2, 1, 16, 16)
    got = truth.clone()
    got[0, 0, 8, 8] = torch.nan
    assert SCORE(got, truth).isnan().tolist() == [True, False]
