"""Successive halving: blocks double, the best stay, and who cannot be told from them stays with them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from gradveil.search.privacy import PRIVACY_SCORES, combine
from gradveil.search.ranking import SMALLEST, blocks, leaders, survivors, yardsticks


@pytest.mark.parametrize("images", [1, 2, 4, 7, 16, 33, 100, 1000])
def test_blocks_cover_every_picture_once_and_at_most_double(images: int) -> None:
    parts = blocks(images)
    assert [place for part in parts for place in part] == list(range(images))
    for before, after in pairwise(parts):
        assert after.stop <= 2 * before.stop
    assert len(parts[0]) >= min(images, SMALLEST)


def spread(means: list[float], pictures: int, noise: float, shared: float = 0.0) -> np.ndarray:
    """Areas with noise of their own and noise that all policies share."""
    rng = np.random.default_rng(0)
    common = shared * rng.standard_normal(pictures)
    return np.array(means)[:, None] + common + noise * rng.standard_normal((len(means), pictures))


def test_far_apart_the_better_half_stays_alone() -> None:
    areas = spread([0.5, 0.1, 0.9, 0.2, 0.7, 0.3], 12, 1e-3)
    assert survivors(areas, 1) == [1, 3, 5]
    assert survivors(areas, 4) == [0, 1, 3, 5]  # four are wanted


def test_who_may_be_among_the_best_stays_too() -> None:
    up_and_down = 0.05 * np.array([1, -1] * 6)
    areas = 0.2 + np.stack([0 * up_and_down, 0.001 + up_and_down, 0.002 - up_and_down, 0.7 + up_and_down])
    assert survivors(areas, 1) == [0, 1, 2]


def test_shared_noise_is_no_excuse() -> None:
    """All policies see the same pictures: what hits all of them alike does not blur who is better."""
    areas = spread([0.1, 0.2, 0.3, 0.4], 12, 1e-3, shared=10.0)
    assert survivors(areas, 1) == [0, 1]


def test_the_truly_best_are_rarely_lost() -> None:
    """Over many races among policies that lie close, the best three of all stay in at least 95 % of them."""
    kept = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        means = np.sort(rng.uniform(0.2, 0.4, 20))
        areas = means[:, None] + 0.1 * rng.standard_normal((20, 8))
        kept += {0, 1, 2} <= set(survivors(areas, 3))
    assert kept >= 190


def test_nobody_leaves_where_all_are_wanted() -> None:
    assert survivors(spread([0.3, 0.1], 5, 0.1), 5) == [0, 1]
    assert survivors(np.array([[0.3], [0.1], [0.2]]), 1) == [0, 1, 2]  # one picture says nothing of its spread


def test_the_ends_of_both_scales_stay_as_yardsticks() -> None:
    areas = spread([0.1, 0.2, 0.3, 0.4, 0.5], 200, 1e-3)
    areas[2, ::2] += 0.2  # neither best nor worst by its mean, but by far the widest
    found = yardsticks(areas, 1)
    assert {0, 2, 4} <= set(found)
    assert len(found) <= 4


def test_leaders_are_the_better_half_and_as_many_as_are_wanted() -> None:
    scores = np.array([0.5, 0.1, 0.9, 0.2, 0.7])
    assert leaders(scores, 1) == [0, 1, 3]
    assert leaders(scores, 4) == [0, 1, 3, 4]


def test_a_race_with_yardsticks_ends_where_a_scaled_score_on_everything_does() -> None:
    """Means and variances that go against each other, so that the scale decides who wins."""
    rng = np.random.default_rng(0)
    means, widths = rng.uniform(0.3, 0.5, 400), rng.uniform(0.02, 0.1, 400)
    areas = means[:, None] + widths[:, None] * rng.standard_normal((400, 100))
    score, classes = PRIVACY_SCORES["ats-code"], torch.arange(100)
    whole = combine(score, torch.from_numpy(areas), classes).numpy()
    alive = np.arange(400)
    for part in blocks(100)[:-1]:
        seen = areas[alive][:, : part.stop]
        partly = combine(score, torch.from_numpy(seen), classes[: part.stop]).numpy()
        alive = alive[sorted({*leaders(partly, 10), *yardsticks(seen)})]
    at_last = combine(score, torch.from_numpy(areas[alive]), classes).numpy()
    best = alive[np.argsort(at_last)[:10]]
    assert len(alive) < 150
    assert whole[best].mean() < 1.03 * np.sort(whole)[:10].mean()
