"""Spoiled pictures: what the three ways of making small do, and noise of the size that was drawn."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gradveil.core.seeds import Seed
from gradveil.generators.degrade import BANK, FINE, KINDS, Damage, degrade, noise_bank


@pytest.fixture(scope="module")
def bank() -> torch.Tensor:
    return noise_bank(Seed(0))


def damage(kind: int, count: int, sigma: float) -> Damage:
    return Damage(torch.full((count,), kind), torch.full((count,), sigma), torch.arange(2 * count).view(count, 2) * 999)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_flat_picture_stays_flat(kind: int, bank: torch.Tensor) -> None:
    flat = torch.full((2, 3, 17, 30), 0.3)
    assert torch.allclose(degrade(flat, damage(kind, 2, 0.0), bank), flat, atol=1e-6)


def test_nearest_keeps_one_pixel_in_sixteen(bank: torch.Tensor) -> None:
    images = torch.rand(1, 3, 16, 16)
    wanted = F.interpolate(images[:, :, 2::4, 2::4], (16, 16), mode="bicubic", align_corners=False).clamp(0, 1)
    assert torch.allclose(degrade(images, damage(0, 1, 0.0), bank), wanted, atol=1e-6)


def test_each_picture_gets_its_own_kind(bank: torch.Tensor) -> None:
    images = torch.rand(3, 1, 16, 16)
    mixed = Damage(torch.tensor([2, 0, 1]), torch.zeros(3), torch.zeros(3, 2, dtype=torch.long))
    got = degrade(images, mixed, bank)
    for place, kind in enumerate((2, 0, 1)):
        alone = degrade(images[place : place + 1], damage(kind, 1, 0.0), bank)
        assert torch.equal(got[place], alone[0])


def test_noise_has_the_deviation_that_was_drawn(bank: torch.Tensor) -> None:
    flat, sigma = torch.full((8, 3, 128, 128), 0.5), 0.08
    got = degrade(flat, damage(2, 8, sigma), bank) - 0.5
    weights = F.interpolate(torch.eye(32).view(1, 32, 32, 1), (128, 1), mode="bicubic", align_corners=False)
    share = weights.square().sum() / 128  # of one line's variance that enlarging keeps
    assert got.var().item() == pytest.approx(sigma**2 * (share.item() ** 2 + FINE**2), rel=0.03)
    assert abs(got.mean().item()) < 2e-3


def test_draws_do_not_depend_on_how_many_follow() -> None:
    few, many = (Damage.draw(count, 0.1, Seed(3)) for count in (5, 500))
    assert all(torch.equal(a, b[:5]) for a, b in zip(few, many, strict=True))
    assert torch.bincount(many.kind).tolist() == pytest.approx([167] * 3, abs=40)
    assert 0.09 < many.sigma.max() <= 0.1
    assert 0 <= many.place.min() <= many.place.max() < BANK


def test_pictures_stay_in_the_box(bank: torch.Tensor) -> None:
    got = degrade(torch.rand(4, 3, 16, 16).round(), damage(2, 4, 1.0), bank)
    assert got.min() == 0
    assert got.max() == 1
