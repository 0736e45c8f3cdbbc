"""Mixtures of known copies: what of a picture they keep is had back, and what they lose no such prior brings back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from gradveil.attacks import ATTACKS
from gradveil.attacks.linear import linear
from gradveil.attacks.unmix import Unmix, copies_by, mixtures
from gradveil.attacks.unmix_solver import Copies, apply_map, gather_slopes, matrices_of, mean_of, slopes, solve
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.oasis import Oasis
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.start import weights_from

SIZE = 16
ALONE = Unmix(inner=linear())


def pictures(count: int = 3) -> Tensor:
    return photos(size=SIZE, limit=count).images.double()


def copies_of(transforms: str) -> Copies:
    return partial(copies_by, Oasis(transforms=transforms))


def mean_copy(transforms: str, x: Tensor) -> Tensor:
    return copies_of(transforms)(x).mean(1)


def spread(transforms: str) -> Tensor:
    """Singular values of the equal mixture."""
    return torch.linalg.svdvals(mean_of(matrices_of(copies_of(transforms), pictures(1))).to_dense())


# the matrices


def test_a_matrix_is_its_copy() -> None:
    x, copies = pictures(), copies_of("major+minor+shear+vflip")
    matrices = matrices_of(copies, x)
    assert len(matrices) == 11
    assert all(torch.allclose(apply_map(m, x), copies(x)[:, k], atol=1e-14) for k, m in enumerate(matrices))


def test_gathered_is_the_transpose_of_slopes() -> None:
    x, y = pictures(), torch.randn(2, 3, 3, SIZE, SIZE, generator=Seed(0).rng(), dtype=torch.float64)
    assert torch.isclose((slopes(x) * y).sum(), (x * gather_slopes(y)).sum(), rtol=1e-12)


# what can be had


@pytest.mark.parametrize(("transforms", "kept"), [("major", 1 / 4), ("hflip", 1 / 2), ("vflip", 1 / 2)])
def test_over_a_group_the_mixture_is_a_projection_that_keeps_one_part(transforms: str, kept: float) -> None:
    values = spread(transforms)
    assert ((values - 1).abs() < 1e-9).double().mean() == kept
    assert ((values.abs() < 1e-9) | ((values - 1).abs() < 1e-9)).all()
    x = pictures()
    mixed = mean_copy(transforms, x)
    assert torch.allclose(mean_copy(transforms, mixed), mixed, atol=1e-14)


@pytest.mark.parametrize(("transforms", "most"), [("major+hflip", 5.0), ("hflip+vflip", 3.0)])
def test_a_set_that_is_no_group_loses_nothing(transforms: str, most: float) -> None:
    values = spread(transforms)
    assert values.max() / values.min() <= most + 1e-9
    x = pictures()
    assert (peak_signal_to_noise(ALONE.take_apart(mean_copy(transforms, x), copies_of(transforms)), x) > 60).all()


@pytest.mark.parametrize("transforms", ["major", "hflip"])
def test_the_part_that_a_group_leaves_alone_is_recovered_and_the_rest_is_not(transforms: str) -> None:
    x = pictures()
    mixed = mean_copy(transforms, x)
    got = solve(mean_of(matrices_of(copies_of(transforms), x)), mixed, tv=1e-7)
    assert torch.allclose(mean_copy(transforms, got), mixed, atol=1e-4)
    rest = got - mean_copy(transforms, got)
    missing = x - mixed
    assert (rest - missing).norm() > 0.97 * missing.norm()


def test_no_convex_prior_that_the_group_leaves_alone_prefers_the_picture_to_its_mixture() -> None:
    """Total variation by absolute differences is such a prior: turning a picture does not change it."""

    def variation(x: Tensor) -> Tensor:
        return x.diff(dim=-1).abs().sum((1, 2, 3)) + x.diff(dim=-2).abs().sum((1, 2, 3))

    x = pictures()
    assert torch.allclose(variation(x.rot90(1, (-2, -1))), variation(x))
    assert (variation(mean_copy("major", x)) <= variation(x)).all()


@pytest.mark.parametrize(("transforms", "least"), [("minor", 40.0), ("shear", 25.0), ("major+shear", 20.0)])
def test_equal_mixtures_are_taken_apart(transforms: str, least: float) -> None:
    x = pictures()
    mixed = mean_copy(transforms, x)
    got = peak_signal_to_noise(ALONE.take_apart(mixed, copies_of(transforms)), x)
    assert got.mean() > least
    assert (got > peak_signal_to_noise(mixed, x) + 5).all()


def test_a_copy_that_was_read_alone_is_undone_by_its_border() -> None:
    x = pictures()
    slid = copies_of("major+shear")(x)[:, 5]
    got = ALONE.take_apart(slid, copies_of("major+shear"))
    assert (peak_signal_to_noise(got, x) > peak_signal_to_noise(slid, x) + 4).all()


@pytest.mark.parametrize("transforms", ["major", "minor", "shear", "major+hflip"])
def test_a_picture_that_was_read_alone_stays_as_it_is(transforms: str) -> None:
    x = pictures()
    assert torch.equal(ALONE.take_apart(x, copies_of(transforms)), x)


def test_which_mixtures_are_tried() -> None:
    x = pictures(1)
    assert len(list(mixtures(matrices_of(copies_of("major"), x)))) == 1  # all
    assert len(list(mixtures(matrices_of(copies_of("minor"), x)))) == 4  # all, each that brings in a border
    assert len(list(mixtures(matrices_of(copies_of("major+shear"), x)))) == 5  # all, the turned ones, each slid one


def test_every_picture_is_solved_for_itself() -> None:
    x = pictures()
    mixed = mean_copy("shear", x)
    together = ALONE.take_apart(mixed, copies_of("shear"))
    for k in range(3):
        assert (ALONE.take_apart(mixed[k : k + 1], copies_of("shear"))[0] - together[k]).abs().max() < 1e-9


def test_what_is_no_number_is_left_alone() -> None:
    mixed = mean_copy("major+hflip", pictures())
    mixed[1, 0, 0, 0] = torch.nan
    got = ALONE.take_apart(mixed, copies_of("major+hflip"))
    assert got[[0, 2]].isfinite().all()
    assert torch.equal(got[1].isnan(), mixed[1].isnan())


# the attack


def played(transforms: str, attack, knows: bool = True) -> tuple[Observation, Truth]:
    with weights_from(0):
        model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(196, 4)).double()
    images = photos(size=SIZE, limit=12).images.double()
    labels = torch.eye(4, dtype=torch.float64)[torch.arange(12) % 4]
    scenario = Scenario(
        name="tiny",
        model=model,
        private=Batch(images[None, :2], labels[None, :2]),
        names=("one",),
        threat=ThreatModel(may_plant=True, knows_defense=knows),
        public=Batch(images[2:], labels[2:]),
    )
    return observe(scenario, Oasis(transforms=transforms), attack, Seed(0))


def scores(transforms: str, knows: bool) -> Tensor:
    attack = ATTACKS["unmix"](neurons=64)
    seen, truth = played(transforms, attack, knows)
    got = attack.reconstruct(seen, Seed(0))
    return peak_signal_to_noise(align(got.images, truth.private.images, got.found).images, truth.private.images)


def test_quarter_turns_with_a_flip_protect_less_than_without() -> None:
    assert (scores("major+hflip", knows=True) > 50).all()
    assert (scores("major+hflip", knows=False) < 25).all()
    assert (scores("major", knows=True) < 25).all()


def test_without_a_known_defense_it_is_the_inner_attack() -> None:
    attack = ATTACKS["unmix"](neurons=64)
    seen, _ = played("major", attack, knows=False)
    assert isinstance(attack, Unmix)
    got, inner = attack.reconstruct(seen, Seed(0)), attack.inner.reconstruct(seen, Seed(0))
    assert torch.equal(got.images, inner.images)
    assert got.notes == inner.notes


def test_it_plants_what_the_inner_attack_plants() -> None:
    assert "malicious" in ATTACKS["unmix"](inner="rtf").requires
    assert "malicious" in ATTACKS["unmix"](inner="cah").requires
    assert "malicious" not in ATTACKS["unmix"](inner="linear").requires


@pytest.mark.parametrize("options", [{"tv": 0.0}, {"tv": -1.0}, {"explained": 0.0}])
def test_what_makes_no_sense_is_refused(options) -> None:
    with pytest.raises(ConfigError, match=r"unmix: .* take numbers > 0"):
        replace(ALONE, **options)
