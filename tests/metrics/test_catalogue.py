"""What every row of METRICS promises."""

from dataclasses import fields

import pytest
import torch
from beartype import beartype
from jaxtyping import jaxtyped

from gradveil.core.check import options_of
from gradveil.core.metric import Facts, Metric
from gradveil.metrics import METRICS, align, facts_of
from gradveil.metrics.features import FeatureGallery
from gradveil.metrics.fsim import score_fsim
from gradveil.metrics.jaccard import Tagger, tags_in_common
from gradveil.metrics.ms_ssim import multi_scale_similarity
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.metrics.retrieval import find_by_features, find_by_pixels
from gradveil.metrics.ssim import structural_similarity

OTHERS = torch.rand(20, 3, 16, 16, generator=torch.Generator().manual_seed(0))
MIX = torch.randn(3 * 16 * 16, 12, generator=torch.Generator().manual_seed(1))


def network(pictures: torch.Tensor) -> torch.Tensor:
    return pictures.flatten(1) @ MIX


FEATURES = FeatureGallery(name="random", network=network, pictures=OTHERS)
TAGGER = Tagger(name="random", network=network, features=network)
OFFERED = {"gallery": OTHERS, "features": FEATURES, "tagger": TAGGER}  # by option, as an audit fills them in
FILES = ("weights", "weights_vgg")  # test_lpips.py


def build(name: str) -> Metric:
    return METRICS[name](**{option: OFFERED[option] for option in options_of(METRICS[name]) if option in OFFERED})


BUILT = [build(name) for name, row in METRICS.items() if not set(FILES) & set(options_of(row))]
PICTURES = [metric for metric in BUILT if metric.about == "pictures"]


@pytest.mark.parametrize("metric", PICTURES, ids=lambda metric: metric.name)
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


@pytest.mark.parametrize("metric", PICTURES, ids=lambda metric: metric.name)
def test_the_truth_itself_leaks_most(metric):
    truth = torch.rand(4, 3, 16, 16)
    best, blank = metric.score(truth, truth), metric.score(torch.full_like(truth, 0.5), truth)
    for exact, guess in zip(best.tolist(), blank.tolist(), strict=True):
        assert metric.worst(exact, guess) == exact
        assert metric.leakage(exact) >= metric.leakage(guess)
    assert best.isfinite().all()


@pytest.mark.parametrize("name", METRICS)
def test_names_itself_and_has_a_summary(name):
    assert METRICS[name].__name__.replace("_", "-") == name
    assert (METRICS[name].__doc__ or "").strip().endswith(".")


@pytest.mark.parametrize("metric", BUILT, ids=lambda metric: metric.name)
def test_what_is_built_has_the_facts_of_its_row(metric):
    facts = facts_of(metric.name)
    assert {one.name: getattr(metric, one.name) for one in fields(Facts)} == vars(facts)


@pytest.mark.parametrize("name", METRICS)
def test_its_row_has_its_facts(name):
    facts = METRICS[name].facts
    assert facts.name == name
    assert facts.label
    assert facts.columns[0] == "worst"
    assert facts_of(f"{name}_fed") is facts
    assert [one.facts.label for one in METRICS.values()].count(facts.label) == 1


@pytest.mark.parametrize("metric", [one for one in PICTURES if one.kind == "rate"], ids=lambda metric: metric.name)
def test_a_rate_is_made_of_zeros_and_ones(metric):
    truth = torch.rand(4, 3, 16, 16)
    scores = torch.cat([metric.score(truth, truth), metric.score(torch.rand(4, 3, 16, 16), truth)])
    assert set(scores.tolist()) <= {0.0, 1.0}


def test_shapes_are_as_annotated():
    got, truth = torch.rand(2, 2, 4, 3, 16, 16)
    plain = (peak_signal_to_noise, structural_similarity, multi_scale_similarity, score_fsim)
    given = [*((function, ()) for function in plain), (find_by_pixels, (got[0],)), (find_by_features, (FEATURES,))]
    for function, extra in (*given, (tags_in_common, (TAGGER,))):
        assert jaxtyped(typechecker=beartype)(function)(got, truth, *extra).shape == (2, 4)
    jaxtyped(typechecker=beartype)(align)(got[:, :3], truth, torch.ones(2, 3, dtype=torch.bool))
