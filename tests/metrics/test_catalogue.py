"""What every row of METRICS promises."""

import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped

from gradveil.metrics import METRICS, align
from gradveil.metrics.features import FeatureGallery
from gradveil.metrics.fsim import score_fsim
from gradveil.metrics.jaccard import tags_in_common
from gradveil.metrics.ms_ssim import multi_scale_similarity
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.metrics.retrieval import find_by_features, find_by_pixels
from gradveil.metrics.ssim import structural_similarity
from gradveil.metrics.tagger import Tagger

OTHERS = torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(0))
MIX = torch.randn(3 * 16 * 16, 12, generator=torch.Generator().manual_seed(1))


def network(pictures: torch.Tensor) -> torch.Tensor:
    return pictures.flatten(1) @ MIX


FEATURES = FeatureGallery(name="random", network=network, pictures=OTHERS)
TAGGER = Tagger(name="random", network=network, features=network)
OFFERED = {
    "retrieval": {"gallery": OTHERS},
    "retrieval-top5": {"gallery": OTHERS},
    "retrieval-detail": {"gallery": OTHERS},
    "retrieval-features": {"features": FEATURES},
    "retrieval-features-top5": {"features": FEATURES},
    "jaccard": {"tagger": TAGGER},
}
FILES = ("lpips", "lpips-vgg")  # test_lpips.py
BUILT = [METRICS[name](**OFFERED.get(name, {})) for name in METRICS if name not in (*FILES, "labels")]


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
    assert METRICS[name].__name__.replace("_", "-") == name
    assert (METRICS[name].__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize("metric", BUILT, ids=lambda metric: metric.name)
def test_its_records_carry_its_name(metric):
    assert metric.name in METRICS


def test_shapes_are_as_annotated():
    got, truth = torch.rand(2, 2, 4, 3, 16, 16)
    plain = (peak_signal_to_noise, structural_similarity, multi_scale_similarity, score_fsim)
    given = [*((function, ()) for function in plain), (find_by_pixels, (got[0],)), (find_by_features, (FEATURES,))]
    for function, extra in (*given, (tags_in_common, (TAGGER,))):
        assert jaxtyped(typechecker=beartype)(function)(got, truth, *extra).shape == (2, 4)
    jaxtyped(typechecker=beartype)(align)(got[:, :3], truth, torch.ones(2, 3, dtype=torch.bool))
