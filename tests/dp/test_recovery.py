"""The chance to be near a picture without its update, on pictures whose chance is known."""

from __future__ import annotations

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_most
from gradveil.data.photos import photos
from gradveil.dp import certify_gaussian, recovery_chance
from gradveil.metrics.psnr import peak_signal_to_noise

BLACK, WHITE = torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4)


def test_two_kinds_of_pictures_are_guessed_half_the_time() -> None:
    """The mean is gray and near to neither: one of the pictures is the better guess."""
    pictures = torch.cat([BLACK, WHITE] * 100)
    found = recovery_chance(pictures, 20.0)
    half = torch.tensor(found.hits / found.of)
    assert (found.of, found.tried) == (100, 101)
    assert found.guess == "a public picture"
    assert 0.3 < half < 0.7
    assert found.kappa == at_most(found.hits, found.of) > half
    assert recovery_chance(pictures, 5.0).hits == 100  # gray is at 6 dB of both
    assert recovery_chance(pictures, 5.0).guess == "the mean of the others"


def test_what_is_chosen_is_bounded_on_other_pictures() -> None:
    """Each picture is near to itself alone: a bound on the pictures of the choice would count that one."""
    noise = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    found = recovery_chance(noise, 40.0)
    assert (found.hits, found.of) == (0, 30)
    assert found.kappa == at_most(0, 30)


def test_near_is_by_psnr() -> None:
    pictures = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    from gradveil.dp.recovery import _near

    decibels = peak_signal_to_noise(pictures[:1].expand(8, -1, -1, -1), pictures)
    for limit in (5.0, 7.0, 8.0, 9.0):
        got = _near(pictures[:1].flatten(1).double(), pictures.flatten(1).double(), limit)
        assert int(got[0]) == int((decibels >= limit).sum())


def test_the_bound_holds_for_the_guess_that_was_chosen() -> None:
    """Of pictures that are white with chance 0.2: the upper bound of any seed is below it in 5 % of cases at most."""
    below = 0
    for seed in range(200):
        white = torch.rand(80, 1, 1, 1, generator=torch.Generator().manual_seed(seed)) < 0.2
        spots = torch.rand(80, 1, 4, 4, generator=torch.Generator().manual_seed(seed + 1000))
        found = recovery_chance(torch.where(white, WHITE, spots), 30.0, seed=seed)
        below += found.kappa < 0.2 and found.guess == "a public picture"
    assert below / 200 < 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


def test_a_certificate_for_being_recovered() -> None:
    public = photos().images[:200]
    found = recovery_chance(public, 18.0)
    noise = certify_gaussian(sigma=1.0)
    got = found.certify(noise)
    assert got.kappa == found.kappa
    assert got.at_most == certify_gaussian(sigma=1.0, kappa=found.kappa).at_most
    assert "recovered at 18 dB or more" in str(got)
    assert "pictures like these 200 public ones" in str(got)
    assert recovery_chance(public, 12.0).kappa >= found.kappa


@pytest.mark.parametrize(
    ("public", "options", "key"),
    [(BLACK.expand(3, -1, -1, -1), {}, "public"), (BLACK.expand(9, 1, 4, 4), {"level": 1.0}, "level")],
)
def test_what_makes_no_sense_is_refused(public: torch.Tensor, options: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: must be "):
        recovery_chance(public, 20.0, **options)
