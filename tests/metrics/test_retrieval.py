"""Identification in a gallery, on pixels and on features."""

import numpy as np
import pytest
import torch
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_least, at_most
from gradveil.metrics import METRICS
from gradveil.metrics.features import FeatureGallery, of_model
from gradveil.metrics.nearest import copies, rivals_ahead
from gradveil.metrics.retrieval import count_ahead

TRIES = 400
GALLERY = torch.rand(200, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def level(value: float) -> torch.Tensor:
    return torch.full((1, 1, 4, 4), value)


def flat(gallery: torch.Tensor) -> FeatureGallery:
    """Looked at as it is: features that are the pixels."""
    return FeatureGallery(name="pixels", network=lambda pictures: pictures.flatten(1), pictures=gallery)


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


def test_five_rivals_may_be_counted_and_four_may_not():
    gallery = torch.cat([level(0.5 + 0.01 * k) for k in range(5)])
    guess, original = level(0.5), level(0.9)
    for name, fewer in (("retrieval-top5", 4), ("retrieval", 0)):
        assert METRICS[name](gallery=gallery).score(guess, original).item() == 0
        if fewer:
            assert METRICS[name](gallery=gallery[:fewer]).score(guess, original).item() == 1


def one_by_one(guess: np.ndarray, original: np.ndarray, gallery: np.ndarray) -> list[int]:
    """The rank, number by number, in float64."""
    ranks = []
    for g, t in zip(guess, original, strict=True):
        rivals = [r for r in gallery if not np.array_equal(r, t)]
        ranks.append(sum(((g - r) ** 2).sum() <= ((g - t) ** 2).sum() for r in rivals))
    return ranks


@pytest.mark.parametrize("offset", [0.0, 1e6])  # far from the origin a matrix product loses what decides
def test_ranks_are_those_of_a_loop(offset):
    rng = np.random.default_rng(0)
    gallery = rng.integers(0, 3, (60, 4)) + offset  # few levels: many ties and copies
    guess, original = rng.integers(0, 3, (40, 4)) + offset, gallery[rng.integers(0, 60, 40)]
    ahead = rivals_ahead(*(torch.from_numpy(np.asarray(x, dtype=float)) for x in (guess, original, gallery)))
    assert ahead.tolist() == one_by_one(guess, original, gallery)
    same = copies(*(torch.from_numpy(np.asarray(x, dtype=float)) for x in (original, gallery)))
    assert same.tolist() == [[np.array_equal(t, r) for r in gallery] for t in original]


def test_the_memory_bound_is_no_matter(monkeypatch):
    got, truth = torch.rand(2, 5, 3, 8, 8)
    whole = METRICS["retrieval-top5"](gallery=GALLERY).score(got, truth)
    monkeypatch.setattr("gradveil.metrics.nearest.NUMBERS_AT_ONCE", 1)
    assert METRICS["retrieval-top5"](gallery=GALLERY).score(got, truth).tolist() == whole.tolist()


@pytest.mark.parametrize(
    ("name", "option", "top"),
    [
        ("retrieval", "gallery", 1),
        ("retrieval-top5", "gallery", 5),
        ("retrieval-features", "features", 1),
        ("retrieval-features-top5", "features", 5),
    ],
)
def test_random_guesses_identify_at_chance(name, option, top):
    """The gallery, the original and the guess are alike in distribution, so every rank is as likely as any other.

    The interval is wrong in 1 of 1,000 seeds on each side; the seed is fixed.
    """
    rng, hits = torch.Generator().manual_seed(6), 0
    for _ in range(TRIES):
        gallery = torch.rand(19, 1, 2, 2, generator=rng)
        metric = METRICS[name](**{option: gallery if option == "gallery" else flat(gallery)})
        got, truth = torch.rand(2, 1, 1, 2, 2, generator=rng)
        hits += int(metric.score(got, truth).item())
    assert at_least(hits, TRIES, 0.999) < top / 20 < at_most(hits, TRIES, 0.999)


def test_a_gallery_longer_than_one_chunk_is_searched_to_its_end():
    score = METRICS["retrieval"](gallery=GALLERY).score
    assert score(GALLERY[-1:], torch.rand(1, 3, 8, 8)).item() == 0


@pytest.mark.parametrize("name", ["retrieval", "retrieval-features"])
def test_not_a_number_is_neither_yes_nor_no(name):
    got, truth = torch.rand(2, 2, 3, 8, 8)
    got[0, 0, 0, 0] = torch.nan
    metric = METRICS[name](**({"gallery": GALLERY} if name == "retrieval" else {"features": flat(GALLERY)}))
    assert metric.score(got, truth).isnan().tolist() == [True, False]


def test_features_see_what_pixels_do_not():
    """Half as bright is far away in pixels and the same direction in features."""
    truth = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    gallery = torch.cat([GALLERY, 0.25 + 0 * GALLERY[:1]])
    dark = 0.5 * truth
    assert METRICS["retrieval"](gallery=gallery).score(dark, truth).sum() == 0
    assert METRICS["retrieval-features"](features=flat(gallery)).score(dark, truth).sum() == 6


def test_a_copy_is_no_rival_by_features_either():
    truth = GALLERY[:3]
    assert METRICS["retrieval-features"](features=flat(GALLERY)).score(truth, truth).tolist() == [1.0] * 3


def test_the_audited_model_gives_what_its_last_linear_layer_is_given():
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 10), nn.Tanh())
    network = of_model(nn.Sequential(body, nn.Linear(10, 4)))
    pictures = GALLERY[:5]
    with torch.no_grad():
        torch.testing.assert_close(network(pictures), body(pictures))
        whole = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        torch.testing.assert_close(of_model(whole)(pictures), whole(pictures))


def test_an_empty_or_unfitting_gallery_is_refused():
    with pytest.raises(ConfigError, match="empty"):
        METRICS["retrieval"](gallery=GALLERY[:0])
    with pytest.raises(ConfigError, match="same size"):
        METRICS["retrieval"](gallery=GALLERY).score(level(0), level(0))


def test_detail_finds_a_picture_that_was_pushed_away_and_pixels_do_not():
    truth = GALLERY[:6].reshape(6, 1, 3, 8, 8)
    ramp = torch.linspace(-2, 2, 8)[:, None].expand(8, 8)
    pushed = (0.2 * truth + 0.8 * torch.rand(6, 1, 3, 1, 1) + 0.3 * ramp).clamp(-5, 5)
    rivals = GALLERY[6:]
    assert METRICS["retrieval-detail"](gallery=rivals).score(pushed, truth).tolist() == [[1.0]] * 6
    assert METRICS["retrieval"](gallery=rivals).score(pushed, truth).sum() < 6


def test_detail_of_a_flat_picture_finds_nobody_and_of_nan_is_not_measured():
    score = METRICS["retrieval-detail"](gallery=GALLERY[1:]).score
    truth = GALLERY[:1].reshape(1, 1, 3, 8, 8)
    assert score(torch.full_like(truth, 0.4), truth).item() == 0
    assert score(torch.full_like(truth, torch.nan), truth).isnan().all()


def test_detail_of_noise_is_at_chance():
    rng = torch.Generator().manual_seed(3)
    guesses, truths = (torch.rand(TRIES, 1, 3, 8, 8, generator=rng) for _ in range(2))
    hits = int(METRICS["retrieval-detail"](gallery=GALLERY[:9]).score(guesses, truths).sum())
    assert at_least(hits, TRIES, 0.999) < 0.1 < at_most(hits, TRIES, 0.999)


def test_the_rank_is_one_more_than_the_rivals_that_are_as_near() -> None:
    guess, truth = (torch.rand(2, 3, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    rows = (one.flatten(0, 1).flatten(1).double().numpy() for one in (guess, truth))
    expected = np.array(one_by_one(*rows, GALLERY.flatten(1).double().numpy())) + 1
    found = METRICS["retrieval-rank"](gallery=GALLERY).score(guess, truth)
    assert found.flatten().tolist() == expected.tolist()
    assert len(set(expected.tolist())) > 2
    assert METRICS["retrieval-rank"](gallery=GALLERY).score(truth, truth).unique().tolist() == [1.0]


def test_distances_are_computed_once_for_all_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setitem(count_ahead.__globals__, "rivals_ahead", lambda *given: calls.append(1) or rivals_ahead(*given))
    metrics = [METRICS[name](gallery=GALLERY) for name in ("retrieval", "retrieval-top5", "retrieval-rank")]
    truth, guess = torch.rand(1, 3, 3, 8, 8), torch.rand(1, 3, 3, 8, 8)
    first = [metric.score(guess, truth) for metric in metrics]
    assert len(calls) == 1
    guess.copy_(truth)  # the same tensor with other numbers is another picture
    assert metrics[2].score(guess, truth).unique().tolist() == [1.0]
    fewer = GALLERY[:9]
    other = [metric.among(fewer).score(guess, truth) for metric in metrics if metric.among]
    assert len(calls) == 3
    assert first[2].max() > 1
    assert len(other) == 3
