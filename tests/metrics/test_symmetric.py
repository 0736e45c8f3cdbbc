"""Identification under symmetries: who is turned is found, and who is another is found no more often than by chance."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.interval import at_least, at_most
from gradveil.metrics import METRICS
from gradveil.metrics.symmetric import SymmetricSearch, likeness


def smooth(count: int, seed: int, side: int = 16, channels: int = 3) -> Tensor:
    """Pictures as much alike as photos are: some large shapes, and little else."""
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 5, 5, generator=rng)
    return F.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)


GALLERY = smooth(200, 5)
TRUTH = smooth(6, 6).reshape(2, 3, 3, 16, 16)
GUISES = {
    "as it is": lambda x: x,
    "mirrored": lambda x: x.flip(-1),
    "upside down": lambda x: x.flip(-2),
    "turned once": lambda x: x.rot90(1, (-2, -1)),
    "turned twice": lambda x: x.rot90(2, (-2, -1)),
    "turned thrice": lambda x: x.rot90(3, (-2, -1)),
    "transposed": lambda x: x.transpose(-1, -2),
    "shifted": lambda x: x.roll((3, -5), (-2, -1)),
    "negative": lambda x: 1 - x,
    "dimmed": lambda x: 0.3 * x + 0.1,
    "all at once": lambda x: 0.8 - 0.5 * x.rot90(1, (-2, -1)).flip(-1).roll(4, -1),
}


@pytest.mark.parametrize("guise", GUISES)
def test_the_original_is_found_in_every_guise(guise: str) -> None:
    got = GUISES[guise](TRUTH)
    assert METRICS["retrieval-symmetric"](gallery=GALLERY).score(got, TRUTH).tolist() == [[1.0] * 3] * 2
    assert METRICS["psnr-symmetric"]().score(got, TRUTH).min() > 100
    if guise != "as it is":
        assert METRICS["psnr"]().score(got, TRUTH).max() < 30


@pytest.mark.parametrize("side", [9, 12, 16, 32, 33, 48])
def test_larger_pictures_are_shrunk_and_turned_alike(side: int) -> None:
    truth, gallery = smooth(4, 1, side), smooth(50, 2, side)
    score = METRICS["retrieval-symmetric"](gallery=gallery).score
    for guise in ("mirrored", "turned once", "negative", "dimmed"):
        assert score(GUISES[guise](truth)[None], truth[None]).tolist() == [[1.0] * 4]
        assert METRICS["psnr-symmetric"]().score(GUISES[guise](truth)[None], truth[None]).min() > 100


def test_pictures_that_are_not_square_are_flipped_and_not_turned() -> None:
    truth, gallery = smooth(4, 1)[..., :10], smooth(50, 2)[..., :10]
    score = METRICS["retrieval-symmetric"](gallery=gallery).score
    assert score(truth.flip(-1)[None], truth[None]).tolist() == [[1.0] * 4]
    assert likeness(truth, truth.flip(-1)).min() > 1 - 1e-9


def test_correlations_are_those_of_a_loop() -> None:
    got, truth = smooth(2, 7, 6), smooth(2, 8, 6)
    for guess, original, found in zip(got, truth, likeness(got, truth), strict=True):
        centered = original - original.mean((1, 2), keepdim=True)
        each = []
        for flipped in (guess, guess.flip(-1)):
            for turns in range(4):
                turned = flipped.rot90(turns, (-2, -1))
                turned = turned - turned.mean((1, 2), keepdim=True)
                for down in range(6):
                    for right in range(6):
                        shifted = turned.roll((down, right), (-2, -1))
                        each.append(((shifted * centered).sum() / (shifted.norm() * centered.norm())).abs())
        assert len(each) == 2 * 4 * 36
        assert found.item() == pytest.approx(max(each).item(), abs=1e-5)


def test_the_nearest_rival_is_that_of_a_loop() -> None:
    got = smooth(6, 9)
    found = SymmetricSearch(GALLERY).compare(got, TRUTH.flatten(0, 1))
    for guess, rival in zip(got, found.rival, strict=True):
        each = likeness(guess.expand(GALLERY.shape), GALLERY)
        assert rival.item() == pytest.approx(each.max().item(), abs=1e-5)


def test_the_memory_bound_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SymmetricSearch(GALLERY).compare(TRUTH, TRUTH)
    monkeypatch.setattr("gradveil.metrics.symmetric.AT_ONCE", 1)
    torch.testing.assert_close(SymmetricSearch(GALLERY).compare(TRUTH, TRUTH), whole, atol=1e-6, rtol=0)


def test_what_was_compared_before_is_not_mistaken_for_what_is_asked_now() -> None:
    search, other = SymmetricSearch(GALLERY), smooth(6, 9).reshape(TRUTH.shape)
    search.compare(TRUTH, TRUTH)
    torch.testing.assert_close(search.compare(other, TRUTH), SymmetricSearch(GALLERY).compare(other, TRUTH))


@pytest.mark.parametrize("guise", GUISES)
def test_a_copy_of_the_original_is_no_rival_however_it_is_turned(guise: str) -> None:
    gallery = torch.cat([GUISES[guise](TRUTH).flatten(0, 1), GALLERY])
    search = SymmetricSearch(gallery)
    assert search.find(TRUTH.flip(-2), TRUTH).tolist() == [[1.0] * 3] * 2
    assert search.compare(TRUTH, TRUTH).rival.max() < 0.999


def test_a_tie_counts_for_the_rival() -> None:
    """Two pictures that are no copies of each other, and a guess in the middle."""
    one, other = torch.zeros(2, 1, 1, 8, 8)
    one[..., 0, 0], other[..., 0, :3] = 1, torch.tensor([1.0, -1, 1])
    sides = [x / (x - x.mean()).norm() for x in (one, other)]
    guess = sides[0] + sides[1]
    alike = [likeness(guess, x).item() for x in sides]
    assert alike[0] == pytest.approx(alike[1], abs=1e-6)
    for truth, rival in (sides, sides[::-1]):
        assert SymmetricSearch(rival).find(guess, truth).item() == 0


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_a_flat_picture_finds_nobody(level: float) -> None:
    search, flat = SymmetricSearch(GALLERY), torch.full_like(TRUTH, level)
    assert search.find(flat, TRUTH).tolist() == [[0.0] * 3] * 2
    assert search.find(TRUTH, flat).tolist() == [[0.0] * 3] * 2
    assert search.find(flat, flat).tolist() == [[0.0] * 3] * 2


def test_what_is_not_a_number_scores_none() -> None:
    got = TRUTH.clone()
    got[0, 1, 0, 2, 2] = torch.nan
    for name, options in (("retrieval-symmetric", {"gallery": GALLERY}), ("psnr-symmetric", {})):
        found = METRICS[name](**options).score(got, TRUTH)
        assert found.isnan().tolist() == [[False, True, False], [False] * 3]


def test_the_floor_is_what_the_nearest_rival_reaches() -> None:
    """A reconstruction between the original and a rival is as near to both, and then the score is at the floor."""
    metric, near = METRICS["retrieval-symmetric"](gallery=GALLERY), METRICS["psnr-symmetric"]().score
    floor = metric.floors["psnr-symmetric"]
    blank = near(torch.full_like(TRUTH, 0.5), TRUTH)
    assert (floor(TRUTH, TRUTH) >= blank).all()
    assert (near(TRUTH, TRUTH) > floor(TRUTH, TRUTH) + 3).all()
    hits = metric.score(other := smooth(6, 9).reshape(TRUTH.shape), TRUTH) > 0
    assert ((near(other, TRUTH) > floor(other, TRUTH)) == hits).all()


@pytest.mark.parametrize("kind", ["noise", "smooth", "one channel"])
@pytest.mark.parametrize("name", ["retrieval", "retrieval-symmetric"])
def test_independent_pictures_are_found_by_chance(name: str, kind: str) -> None:
    """1 / (K + 1), and 3 dB nearer than every rival hardly ever."""
    tries, rivals = 600, 9
    hits = near = 0
    for seed in range(30):
        rng = torch.Generator().manual_seed(seed)
        count = 2 * 20 + rivals
        channels = 1 if kind == "one channel" else 3
        pictures = torch.rand(count, 3, 8, 8, generator=rng) if kind == "noise" else smooth(count, seed, 8, channels)
        metric = METRICS[name](gallery=pictures[40:])
        got, truth = pictures[None, :20], pictures[None, 20:40]
        hits += int(metric.score(got, truth).sum())
        if metric.floors:
            over = METRICS["psnr-symmetric"]().score(got, truth) - metric.floors["psnr-symmetric"](got, truth)
            near += int((over >= 3).sum())
    assert at_least(hits, tries, 0.999) <= 1 / (rivals + 1) <= at_most(hits, tries, 0.999)
    assert near <= 0.01 * tries
