"""Identification in a gallery."""

import pytest
import torch

from gradveil.errors import ConfigError
from gradveil.metrics import METRICS

GALLERY = torch.rand(200, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def level(value: float) -> torch.Tensor:
    return torch.full((1, 1, 4, 4), value)


def test_the_original_is_identified_and_another_picture_is_not():
    score = METRICS["retrieval"](gallery=GALLERY).score
    truth = torch.rand(2, 3, 3, 8, 8)
    assert score(truth, truth).tolist() == [[1.0] * 3] * 2
    assert score(GALLERY[:6].reshape(2, 3, 3, 8, 8), truth).tolist() == [[0.0] * 3] * 2


def test_the_nearest_is_by_squared_error():
    score = METRICS["retrieval"](gallery=level(0.8)).score
    assert score(level(0.49), level(0.2)).item() == 1
    assert score(level(0.51), level(0.2)).item() == 0


def test_a_tie_is_not_identified():
    score = METRICS["retrieval"](gallery=level(0.75)).score
    assert score(level(0.5), level(0.25)).item() == 0


def test_a_copy_of_the_original_in_the_gallery_is_no_rival():
    score = METRICS["retrieval"](gallery=torch.cat([level(0.25), level(0.75)])).score
    assert score(level(0.3), level(0.25)).item() == 1


def test_random_guesses_identify_at_chance():
    rng = torch.Generator().manual_seed(6)
    hits = []
    for _ in range(1000):
        metric = METRICS["retrieval"](gallery=torch.rand(3, 1, 2, 2, generator=rng))
        got, truth = torch.rand(2, 1, 1, 2, 2, generator=rng)
        hits.append(metric.score(got, truth).item())
    assert metric.chance == 0.25
    assert sum(hits) / len(hits) == pytest.approx(metric.chance, abs=0.05)  # 3.6 standard errors


def test_a_gallery_longer_than_one_chunk_is_searched_to_its_end():
    score = METRICS["retrieval"](gallery=GALLERY).score
    assert score(GALLERY[-1:], torch.rand(1, 3, 8, 8)).item() == 0


def test_not_a_number_is_neither_yes_nor_no():
    got, truth = torch.rand(2, 2, 3, 8, 8)
    got[0, 0, 0, 0] = torch.nan
    assert METRICS["retrieval"](gallery=GALLERY).score(got, truth).isnan().tolist() == [True, False]


def test_an_empty_or_unfitting_gallery_is_refused():
    with pytest.raises(ConfigError, match="empty"):
        METRICS["retrieval"](gallery=GALLERY[:0])
    with pytest.raises(ConfigError, match="same size"):
        METRICS["retrieval"](gallery=GALLERY).score(level(0), level(0))
