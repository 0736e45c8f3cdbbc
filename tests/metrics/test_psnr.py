"""PSNR against scikit-image, and at the edges."""

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio

from gradveil.metrics import METRICS
from gradveil.metrics.psnr import EXACT

SCORE = METRICS["psnr"]().score


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 28, 28), (3, 32, 32), (3, 7, 40)])
@pytest.mark.parametrize("noise", [1e-4, 0.05, 1.0])
def test_equals_scikit_image(shape, noise):
    rng = torch.Generator().manual_seed(0)
    truth = torch.rand(4, 5, *shape, generator=rng)
    got = (truth + noise * torch.randn(truth.shape, generator=rng)).clamp(0, 1)
    scores = SCORE(got, truth)
    assert scores.shape == (4, 5)
    for client in range(4):
        for example in range(5):
            pair = truth[client, example].double().numpy(), got[client, example].double().numpy()
            if (pair[0] != pair[1]).any():
                assert scores[client, example].item() == pytest.approx(
                    peak_signal_noise_ratio(*pair, data_range=1), abs=1e-6
                )


def test_an_exact_match_is_capped_and_beats_everything_else():
    truth = torch.rand(2, 3, 8, 8)
    nearly = truth.double()
    nearly[1, 0, 0, 0] += 1e-9
    scores = SCORE(nearly, truth.double())
    assert scores[0] == EXACT
    assert 150 < scores[1] <= EXACT


def test_black_against_white_is_zero():
    assert SCORE(torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)).item() == 0


def test_not_a_number_stays_so_and_spoils_no_neighbor():
    truth = torch.rand(2, 1, 4, 4)
    got = truth + 0.1
    got[0, 0, 0, 0] = torch.nan
    scores = SCORE(got, truth)
    assert scores[0].isnan()
    assert scores[1].item() == pytest.approx(20, abs=1e-5)
