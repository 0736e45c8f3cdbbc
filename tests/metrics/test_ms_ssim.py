"""Multi-scale SSIM against a reference in NumPy and SciPy, and its promises for small pictures."""

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate1d

from gradveil.metrics import METRICS
from gradveil.metrics.ms_ssim import SHARES, scales


def whole_windows(image: np.ndarray) -> np.ndarray:
    """Gaussian average of every 11 x 11 window inside the picture."""
    place = np.arange(11) - 5
    weight = np.exp(-(place**2) / (2 * 1.5**2))
    weight /= weight.sum()
    return correlate1d(correlate1d(image, weight, 0), weight, 1)[5:-5, 5:-5]


def reference(x: np.ndarray, y: np.ndarray) -> float:
    """Of one channel: contrast and structure on all scales, the whole similarity on the coarsest."""
    values = []
    for scale in range(5):
        means = [whole_windows(image) for image in (x, y)]
        variances = [whole_windows(image**2) - mean**2 for image, mean in zip((x, y), means, strict=True)]
        covariance = whole_windows(x * y) - means[0] * means[1]
        structure = (2 * covariance + 0.0009) / (variances[0] + variances[1] + 0.0009)
        level = (2 * means[0] * means[1] + 0.0001) / (means[0] ** 2 + means[1] ** 2 + 0.0001)
        values.append((structure * level if scale == 4 else structure).mean())
        half = [side // 2 for side in x.shape]
        x, y = (i[: 2 * half[0], : 2 * half[1]].reshape(half[0], 2, half[1], 2).mean((1, 3)) for i in (x, y))
    return float(np.prod([max(value, 0) ** share for value, share in zip(values, SHARES, strict=True)]))


def test_equals_the_reference_with_five_scales():
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.standard_normal((2, 180, 190)), 1), 2)
    truth = (smooth - smooth.min()) / (smooth.max() - smooth.min())
    got = (truth + 0.1 * rng.standard_normal(truth.shape)).clip(0, 1)
    score = METRICS["ms-ssim"]().score(torch.from_numpy(got)[None], torch.from_numpy(truth)[None])
    expected = [reference(a, b) for a, b in zip(got, truth, strict=True)]
    assert score.item() == pytest.approx(np.mean(expected), abs=1e-9)


def test_one_scale_is_plain_ssim():
    got, truth = torch.rand(2, 4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    near = (0.8 * truth + 0.2 * got).clamp(0, 1)
    torch.testing.assert_close(METRICS["ms-ssim"]().score(near, truth), METRICS["ssim"]().score(near, truth))


@pytest.mark.parametrize(("side", "count"), [(1, 1), (21, 1), (22, 2), (32, 2), (44, 3), (176, 5), (1000, 5)])
def test_as_many_scales_as_leave_a_whole_window(side, count):
    assert scales(side) == count
    assert count == 1 or side // 2 ** (count - 1) >= 11


def test_opposites_score_nothing_and_copies_all():
    truth = torch.rand(3, 1, 48, 40, generator=torch.Generator().manual_seed(0))
    score = METRICS["ms-ssim"]().score
    torch.testing.assert_close(score(truth, truth), torch.ones(3, dtype=torch.float64))
    assert score(1 - truth, truth).abs().max() == 0
