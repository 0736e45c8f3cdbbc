"""The accuracy score: the eigenvalues of correlated Jacobians, against numpy and where numpy would fail."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scenes import CLASSES, SHAPE, drawn, usual
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.models.normalize import Normalize
from gradveil.search.accuracy import (
    ETA,
    THRESHOLD,
    accuracy_rounds,
    correlation,
    jacobians,
    spread_scores,
)

COPY = math.log(ETA) + 1 / ETA  # of an eigenvalue 0


def jacobian_scores(model: nn.Module, fed: Tensor) -> Tensor:
    """The score of every policy, of pictures [policy, image, ...] as they are fed."""
    return spread_scores(jacobians(model, fed.flatten(0, 1)).unflatten(0, fed.shape[:2]))


class Half(nn.Module):
    """Its Jacobian is the picture itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).square().sum(1, keepdim=True) / 2


class Deaf(nn.Module):
    """Does not answer to any picture."""

    def forward(self, x: Tensor) -> Tensor:
        return 0 * x.flatten(1)


def hadamard(size: int) -> Tensor:
    """Rows of 1 and -1 that are orthogonal to one another and, but for the first, to the constant."""
    h = torch.ones(1, 1, dtype=torch.float64)
    while len(h) < size:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h


def of_numpy(rows: np.ndarray) -> float:
    """The authors' formula, divided by the number of pictures."""
    v = np.linalg.eigvals(np.corrcoef(rows)).real
    return float(-np.mean(np.log(v + ETA) + 1 / (v + ETA)))


def test_the_jacobian_is_that_of_autograd_one_by_one():
    model, fed = usual(), drawn(3, *SHAPE)
    got = jacobians(model, fed)
    std = model.normalize.std.double()
    for row, picture in zip(got, fed, strict=True):
        slope = torch.autograd.functional.jacobian(lambda x: model.eval()(x[None]).sum(), picture)
        assert torch.allclose(row.view(SHAPE), slope * std, atol=1e-12)


def test_normalization_inside_or_outside_of_the_model_scores_alike():
    inner, fed = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.Tanh()).double(), drawn(1, 6, *SHAPE)
    first = Normalize((0.5, 0.4, 0.3), (0.1, 0.5, 0.9)).double()
    inside = jacobian_scores(nn.Sequential(first, inner), fed)
    assert torch.allclose(inside, jacobian_scores(inner, first(fed[0])[None]), atol=1e-9)


def test_scores_are_those_of_numpy():
    model, fed = usual(), drawn(4, 7, *SHAPE)
    rows = jacobians(model, fed.flatten(0, 1)).view(4, 7, -1).numpy()
    assert np.allclose(jacobian_scores(model, fed), [of_numpy(each) for each in rows], rtol=1e-6)


def test_uncorrelated_jacobians_score_minus_1():
    fed = hadamard(16)[1:9].view(1, 8, 1, 4, 4)
    assert jacobian_scores(Half(), fed).item() == pytest.approx(-(math.log(1 + ETA) + 1 / (1 + ETA)), abs=1e-12)
    assert jacobian_scores(Half(), fed).item() == pytest.approx(-1.0, abs=1e-9)


def test_copies_score_as_low_as_can_be():
    """One eigenvalue is N, the others are 0."""
    fed = drawn(1, 1, 1, 4, 4).expand(1, 5, 1, 4, 4)
    expected = -(math.log(5 + ETA) + 1 / (5 + ETA) + 4 * COPY) / 5
    assert jacobian_scores(Half(), fed).item() == pytest.approx(expected, rel=1e-6)


def test_more_pictures_than_pixels_are_copies_in_part():
    """Nine pictures in the three dimensions that four pixels without their mean have: six eigenvalues are 0."""
    score = jacobian_scores(Half(), drawn(1, 9, 1, 2, 2)).item()
    assert math.isfinite(score)
    assert score == pytest.approx(-6 * COPY / 9, rel=1e-3)


def test_a_picture_that_the_model_does_not_answer_to_counts_like_a_copy():
    fed = hadamard(16)[1:5].view(1, 4, 1, 4, 4).clone()
    fed[0, 2] = 0.7  # the same everywhere
    assert jacobian_scores(Half(), fed).item() == pytest.approx(-(3 + COPY) / 4, rel=1e-6)
    assert jacobian_scores(Deaf(), fed).item() == pytest.approx(-COPY, rel=1e-9)


def test_one_picture_alone_is_uncorrelated():
    assert jacobian_scores(usual(), drawn(2, 1, *SHAPE)).tolist() == pytest.approx([-1.0, -1.0], abs=1e-9)


def test_the_order_of_pictures_does_not_matter():
    fed = drawn(1, 6, *SHAPE)
    turned = fed[:, torch.tensor([4, 2, 5, 0, 1, 3])]
    assert torch.allclose(jacobian_scores(usual(), fed), jacobian_scores(usual(), turned), rtol=1e-9)


def test_a_policy_alone_scores_as_among_others_and_across_chunks():
    fed = drawn(30, 5, *SHAPE)  # 150 pictures: several chunks, which cut through policies
    together = jacobian_scores(usual(), fed)
    alone = torch.cat([jacobian_scores(usual(), fed[i : i + 1]) for i in (0, 12, 29)])
    assert torch.allclose(together[[0, 12, 29]], alone, rtol=1e-9)


def test_float32_pictures_score_as_float64_ones():
    fed = drawn(2, 6, *SHAPE)
    rough = jacobian_scores(usual().float(), fed.float())
    assert torch.allclose(rough, jacobian_scores(usual(), fed), rtol=1e-3)


def test_a_constant_row_in_float32_is_not_taken_for_noise():
    row = torch.full((1, 50), 0.1)
    assert correlation(row).tolist() == [[0.0]]


def test_the_caller_s_model_stays_in_its_mode():
    model = usual().train()
    jacobian_scores(model, drawn(1, 3, *SHAPE))
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_the_threshold_is_between_uncorrelated_and_copied():
    assert -1.36 < THRESHOLD < -1.34


def test_rounds_differ_until_all_pictures_have_come():
    rounds = accuracy_rounds(torch.arange(40) % CLASSES, 4, 10, Seed(3))
    assert [len(r) for r in rounds] == [10, 10, 10, 10]
    assert torch.cat(rounds).sort().values.tolist() == list(range(40))
    more = accuracy_rounds(torch.arange(40) % CLASSES, 7, 15, Seed(3))
    assert all(len(r.unique()) == 15 for r in more)
    assert all(not torch.equal(a, b) for a, b in pairwise(more))


def test_distinct_labels_keep_the_first_of_each_class():
    labels = torch.arange(40) % CLASSES
    plain = accuracy_rounds(labels, 3, 20, Seed(1))
    for kept, picked in zip(accuracy_rounds(labels, 3, 20, Seed(1), distinct_labels=True), plain, strict=True):
        assert len(labels[kept].unique()) == len(kept) == len(labels[picked].unique())
        places = [picked.tolist().index(place) for place in kept.tolist()]
        assert places == sorted(places)
        assert places[0] == 0


def test_soft_labels_and_classes_pick_the_same():
    labels = torch.arange(12) % CLASSES
    soft = torch.nn.functional.one_hot(labels, CLASSES).double()
    pairs = zip(accuracy_rounds(labels, 2, 6, Seed(0), True), accuracy_rounds(soft, 2, 6, Seed(0), True), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_more_pictures_than_there_are_is_one_clear_error():
    with pytest.raises(ConfigError, match="take 1 to 5"):
        accuracy_rounds(torch.arange(5), 1, 6, Seed(0))
