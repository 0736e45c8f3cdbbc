"""FSIM as a metric: the function that policies use, for batches of any shape."""

import torch

from gradveil.metrics import METRICS
from gradveil.metrics.fsim_map import fsim


def test_every_picture_gets_what_it_gets_alone():
    rng = torch.Generator().manual_seed(0)
    got, truth = torch.rand(2, 3, 30, 3, 24, 24, generator=rng)  # more than are looked at at once
    scores = METRICS["fsim"]().score(got, truth)
    assert scores.shape == (3, 30)
    for client, example in ((0, 0), (1, 17), (2, 29)):
        alone = fsim(got[client, example][None], truth[client, example][None])
        torch.testing.assert_close(scores[client, example], alone[0])


def test_more_noise_is_less_alike():
    rng = torch.Generator().manual_seed(1)
    truth = torch.rand(1, 1, 48, 48, generator=rng).cumsum(-1) / 48
    noise = torch.randn(truth.shape, generator=rng)
    scores = [METRICS["fsim"]().score((truth + s * noise).clamp(0, 1), truth).item() for s in (0, 0.05, 0.2, 0.8)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1
