"""What every row of METRICS promises."""

import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped

from gradveil.metrics import METRICS, align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.metrics.retrieval import identified
from gradveil.metrics.ssim import structural_similarity

BUILT = [METRICS["psnr"](), METRICS["ssim"](), METRICS["retrieval"](gallery=torch.rand(20, 3, 16, 16))]


@pytest.mark.parametrize("metric", BUILT, ids=lambda metric: metric.name)
def test_scores_each_picture_alone(metric):
    truth = torch.rand(2, 4, 3, 16, 16)
    got = (truth + 0.3 * torch.rand(truth.shape)).clamp(0, 1)
    together = metric.score(got, truth)
    alone = [
        [metric.score(g[None], t[None]).item() for g, t in zip(*pair, strict=True)]
        for pair in zip(got, truth, strict=True)
    ]
    assert together.shape == (2, 4)
    torch.testing.assert_close(together, torch.tensor(alone, dtype=together.dtype))


@pytest.mark.parametrize("metric", BUILT, ids=lambda metric: metric.name)
def test_the_truth_itself_leaks_most(metric):
    truth = torch.rand(4, 3, 16, 16)
    sign = 1 if metric.more_is_leakier else -1
    best, blank = metric.score(truth, truth), metric.score(torch.full_like(truth, 0.5), truth)
    assert (sign * best >= sign * blank).all()
    assert best.isfinite().all()


@pytest.mark.parametrize("name", METRICS)
def test_names_itself_and_has_a_summary(name):
    assert METRICS[name].__name__ == name
    assert (METRICS[name].__doc__ or "").strip().endswith(".")


def test_shapes_are_as_annotated():
    got, truth = torch.rand(2, 2, 4, 3, 16, 16)
    for function, extra in ((peak_signal_to_noise, ()), (structural_similarity, ()), (identified, (got[0],))):
        assert jaxtyped(typechecker=beartype)(function)(got, truth, *extra).shape == (2, 4)
    jaxtyped(typechecker=beartype)(align)(got[:, :3], truth, torch.ones(2, 3, dtype=torch.bool))
