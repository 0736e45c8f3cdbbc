"""The privacy score: areas under known curves, how they are combined, and what an attacker who knows gains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scenes import SHAPE, drawn, one_hot, usual
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.search.privacy import (
    PRIVACY_SCORES,
    PrivacyScore,
    areas,
    combine,
    gradsim,
)
from gradveil.search.similarity import Similarity
from gradveil.transforms import Draw, Policy

IMAGES = 4


class Blank:
    """Paints every picture in one gray."""

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        return torch.full_like(images, 0.5)


class Dim:
    """Halves a picture, or takes its negative where the sign that was drawn is -1."""

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        return torch.where(draw.signs[:, 0].view(-1, 1, 1, 1) > 0, images / 2, 1 - images)


class Untouched:
    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        return images


@pytest.fixture(scope="module")
def similarity() -> Similarity:
    return Similarity(usual(), LocalTraining(), Compute(precision="float64"))


def given() -> tuple[Tensor, Tensor, Tensor, Draw]:
    signs = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    start = drawn(IMAGES, *SHAPE, seed=6)
    return drawn(IMAGES, *SHAPE, seed=5), one_hot(1, IMAGES)[0], start, Draw(torch.zeros(IMAGES).long(), signs)


def test_the_left_sum_of_a_known_curve():
    score = PrivacyScore(rule="left", points=4)
    assert score.coefficients == (0.0, 0.25, 0.5, 0.75)
    line = torch.tensor([score.coefficients])
    assert score.area(line).item() == pytest.approx(0.375)  # below 1/2 by half a step


def test_the_trapezoid_of_a_line_and_of_a_constant_is_exact():
    score = PrivacyScore(rule="trapezoid", points=21)
    whole = torch.tensor([[*score.coefficients, 1.0]], dtype=torch.float64)
    assert whole.shape == (1, 21)
    assert whole.diff().allclose(torch.tensor(0.05, dtype=torch.float64))
    assert score.area(whole).item() == pytest.approx(0.5, abs=1e-12)
    assert score.area(torch.ones(1, 21)).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("rule", "points"), [("trapezoid", 1), ("left", 0)])
def test_too_few_points_are_refused(rule, points):
    with pytest.raises(ConfigError, match="points"):
        PrivacyScore(rule=rule, points=points)


def test_alpha_is_a_share():
    with pytest.raises(ConfigError, match="alpha"):
        PrivacyScore(alpha=1.5)


@pytest.mark.parametrize("against", ["unaware", "adaptive"])
@pytest.mark.parametrize("name", PRIVACY_SCORES)
def test_areas_are_those_of_the_curve_point_by_point(similarity, name, against):
    """By hand: every point and the target through the policy one by one, numpy's trapezoid or a mean."""
    score, (images, labels, start, draw) = PRIVACY_SCORES[name], given()
    got = areas(score, similarity, Dim(), images, labels, start, draw, against)
    target = Dim().apply(images, draw)
    steps = score.points - (score.rule == "trapezoid")
    curve = []
    for i in (j / steps for j in range(score.points)):
        point = (1 - i) * start + i * (images if against == "adaptive" else target)
        point = Dim().apply(point, draw) if against == "adaptive" else point
        found = similarity(point[:, None], target, labels)
        curve.append((found.flat() if score.similarity == "flat" else found.per_tensor())[:, 0].numpy())
    expected = np.mean(curve, 0) if score.rule == "left" else (np.sum(curve, 0) - (curve[0] + curve[-1]) / 2) / steps
    assert np.allclose(got.numpy(), expected, atol=1e-9)


def test_who_knows_that_nothing_is_done_learns_nothing(similarity):
    images, labels, start, draw = given()
    ways = [
        areas(PrivacyScore(), similarity, Untouched(), images, labels, start, draw, a) for a in ("unaware", "adaptive")
    ]
    assert torch.equal(*ways)


def test_a_policy_that_erases_the_picture_leaves_the_adaptive_attacker_at_the_target_everywhere(similarity):
    """All guesses look alike after it, so the curve is flat at 1: there is no way to follow."""
    images, labels, start, draw = given()
    found = gradsim(similarity, Blank(), images, labels, start, draw, at=(0.0, 0.5, 1.0), against="adaptive")
    assert torch.allclose(found.flat(), torch.ones(IMAGES, 3, dtype=torch.float64), atol=1e-9)


def test_the_curve_layer_by_layer_ends_at_1(similarity):
    images, labels, start, draw = given()
    found = gradsim(similarity, Dim(), images, labels, start, draw, at=(0.0, 0.5, 1.0))
    assert found.by_tensor().shape == (IMAGES, 3, len(similarity.names))
    assert torch.allclose(found.by_tensor()[:, -1], torch.ones(1, dtype=torch.float64), atol=1e-9)
    assert found.flat()[:, 0].max() < 0.999


def test_a_real_policy_fits(similarity):
    images, labels, start, _ = given()
    policy = Policy.parse("3-1-7+none")
    draw = policy.draw(IMAGES, torch.Generator().manual_seed(0))
    for against in ("unaware", "adaptive"):
        found = areas(PRIVACY_SCORES["ats-code"], similarity, policy, images, labels, start, draw, against)
        assert found.shape == (IMAGES,)
        assert bool(((found > -1) & (found <= 1)).all())


def test_a_picture_alone_has_the_area_that_it_has_among_others(similarity):
    images, labels, start, draw = given()
    together = areas(PrivacyScore(), similarity, Dim(), images, labels, start, draw)
    alone = areas(
        PrivacyScore(), similarity, Dim(), images[2:3], labels[2:3], start[2:3], Draw(draw[0][2:3], draw[1][2:3])
    )
    assert torch.allclose(together[2:3], alone, atol=1e-10)


AREAS = torch.tensor([[0.1, 0.2, 0.3, 0.8], [0.5, 0.5, 0.5, 0.5], [0.9, 0.1, 0.4, 0.2]], dtype=torch.float64)


def test_eq_10_with_the_variance_of_samples():
    got = combine(PrivacyScore(), AREAS, torch.tensor([0, 0, 1, 1]))
    assert np.allclose(got, 0.7 * AREAS.numpy().mean(1) + 0.3 * AREAS.numpy().var(1))


def test_the_code_of_ats_by_hand():
    """Means of the classes 7 and 9; mean and variance of those, each from 0 to 1 over the policies."""
    means = np.array([[0.2, 0.5], [0.5, 0.5], [0.65, 0.15]])  # pictures 0 and 2, and 1 and 3
    mean, variance = means.mean(1), means.var(1)
    mean, variance = ((v - v.min()) / (v.max() - v.min()) for v in (mean, variance))
    got = combine(PRIVACY_SCORES["ats-code"], AREAS, torch.tensor([7, 9, 7, 9]))
    assert np.allclose(got, 0.7 * mean + 0.3 * variance)


def test_min_max_of_equal_policies_is_0_and_not_nan():
    same = AREAS[:1].expand(3, 4)
    assert combine(PRIVACY_SCORES["ats-code"], same, torch.tensor([0, 0, 1, 1])).tolist() == [0.0, 0.0, 0.0]


def test_the_order_of_pictures_does_not_matter():
    classes, order = torch.tensor([3, 1, 3, 1]), torch.tensor([2, 0, 3, 1])
    for score in PRIVACY_SCORES.values():
        assert torch.allclose(combine(score, AREAS, classes), combine(score, AREAS[:, order], classes[order]))
