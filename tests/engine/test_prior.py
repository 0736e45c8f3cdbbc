"""Priors against numbers worked out by hand, and statistics against the client's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, batch_statistics, drawn, one_picture, scene, seen_in, settled
from torch import Tensor, nn

from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.engine.priors.prior import (
    BatchNormStatistics,
    Box,
    Norm,
    Prior,
    TotalVariation,
    dealt,
    target_statistics,
)
from gradveil.models.start import weights_from

# one trial, one example, one channel, 2 x 3
PICTURE = torch.tensor([[0.0, 1.0, 3.0], [2.0, 2.0, -1.0]]).view(1, 1, 1, 2, 3).double()


@pytest.fixture(scope="module")
def seen() -> Observation:
    return seen_in(one_picture(2))


def penalty(prior: Prior, images: Tensor, seen: Observation, restarts: tuple[int, ...] = (0,)) -> Tensor:
    each = seen.take([0] * len(restarts))
    return prior.bind(each, torch.tensor(restarts))(images, images)


def test_anisotropic_total_variation_by_hand(seen: Observation) -> None:
    down, right = (2 + 1 + 4) / 3, (1 + 2 + 0 + 3) / 4
    assert TotalVariation().of(PICTURE).item() == pytest.approx(down + right)
    assert penalty(TotalVariation(0.5), PICTURE, seen).item() == pytest.approx(0.5 * (down + right))


def test_isotropic_total_variation_by_hand(seen: Observation) -> None:
    lengths = (2**2 + 1**2) ** 0.5, (1**2 + 2**2) ** 0.5
    expected = sum(lengths) / 2
    assert penalty(TotalVariation(0.5, isotropic=True), PICTURE, seen).item() == pytest.approx(0.5 * expected)


@pytest.mark.parametrize("isotropic", [True, False])
def test_total_variation_of_a_plain_picture_is_flat(isotropic: bool) -> None:
    plain = torch.full((2, 1, 3, 4, 4), 0.3, dtype=torch.float64, requires_grad=True)
    value = TotalVariation(isotropic=isotropic).of(plain)
    assert value.max() <= 1e-6
    assert torch.autograd.grad(value.sum(), plain)[0].abs().max() == 0


def test_box_by_hand(seen: Observation) -> None:
    outside = (2**2 + 1**2 + 1**2 + 1**2) / 6  # 3, 2, 2 and -1
    assert penalty(Box(0.5), PICTURE, seen).item() == pytest.approx(0.5 * outside)
    assert penalty(Box(), PICTURE.clamp(0, 1), seen).item() == 0


def test_norm_by_hand(seen: Observation) -> None:
    assert penalty(Norm(0.5), PICTURE, seen).item() == pytest.approx(0.5 * (1 + 9 + 4 + 4 + 1) / 6)


def test_several_weights_are_dealt_over_the_restarts(seen: Observation) -> None:
    like = torch.zeros(1, dtype=torch.float64)
    assert dealt((1.0, 2.0, 3.0), torch.tensor([0, 1, 2, 3, 4]), like).tolist() == [1, 2, 3, 1, 2]
    assert dealt(7.0, torch.tensor([0, 1]), like).tolist() == [7, 7]
    three = PICTURE.expand(3, -1, -1, -1, -1)
    alone = penalty(Norm(1.0), PICTURE, seen)
    assert torch.allclose(penalty(Norm((1.0, 10.0)), three, seen, (0, 1, 2)), alone * torch.tensor([1.0, 10.0, 1.0]))


@pytest.mark.parametrize("prior", [TotalVariation(1.0), TotalVariation(1.0, True), Norm(1.0), Box(1.0)])
def test_every_trial_has_its_own(prior: Prior, seen: Observation) -> None:
    images = 3 * drawn(2, 1, 3, 8, 8) - 1
    together = penalty(prior, images, seen, (0, 0))
    assert torch.allclose(together, torch.cat([penalty(prior, one, seen) for one in images.split(1)]))
    assert together[0] != together[1]


@pytest.mark.parametrize("isotropic", [False, True])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 5), (5, 1)])
def test_a_picture_one_pixel_wide_varies_along_its_line_alone(isotropic: bool, height: int, width: int) -> None:
    line = drawn(2, 3, 2, height, width).requires_grad_()
    got = TotalVariation(isotropic=isotropic).of(line)
    apart = line.flatten(3).diff(dim=-1).abs().flatten(1)
    expected = apart.mean(1) if apart.shape[1] and not isotropic else torch.zeros(2).double()
    assert torch.allclose(got, expected)
    assert torch.autograd.grad(got.sum(), line)[0].isfinite().all()


def one_norm(steps: int = 1) -> Scenario:
    """A net with a single normalization layer."""
    with weights_from(0):
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)]
        model = settled(nn.Sequential(*layers))
    return scene(model, 2, 4, training=LocalTraining(batchnorm="batch-shared", steps=steps))


def test_the_target_is_the_clients_own_batch() -> None:
    scenario = one_norm()
    target = target_statistics(seen_in(scenario))
    entering = torch.stack([scenario.model[0](x) for x in scenario.private.images])  # type: ignore[index]
    assert torch.allclose(target["1.mean"], entering.mean((1, 3, 4)))
    assert torch.allclose(target["1.var"], entering.transpose(1, 2).flatten(2).var(2))


def statistics_at_the_truth(scenario: Scenario) -> Tensor:
    seen = seen_in(scenario)
    images = scenario.private.images
    return BatchNormStatistics(1.0).bind(seen, torch.zeros(len(images)).long())(images, images).detach()


def test_statistics_vanish_at_the_true_batch() -> None:
    assert statistics_at_the_truth(one_norm()).max() < 1e-12


def test_statistics_vanish_at_the_true_batch_of_a_deeper_net() -> None:
    assert statistics_at_the_truth(batch_statistics(2, shared=True)).max() < 1e-12


def test_statistics_do_not_vanish_elsewhere_and_have_a_slope() -> None:
    seen = seen_in(batch_statistics(2, shared=True))
    images = drawn(2, 4, 3, 8, 8, seed=5).requires_grad_()
    value = BatchNormStatistics(1.0).bind(seen, torch.zeros(2).long())(images, images)
    assert value.min() > 0.01
    assert torch.autograd.grad(value.sum(), images)[0].abs().max() > 0


def test_without_shared_statistics_the_running_ones_are_the_target() -> None:
    seen = seen_in(batch_statistics(2))
    target = target_statistics(seen)
    assert torch.equal(target["norm1.mean"][0], seen.model.norm1.running_mean)  # type: ignore[union-attr]
    assert target["norm2.var"].shape == (1, 6)


def test_statistics_of_each_trial_are_its_own() -> None:
    seen = seen_in(batch_statistics(2, shared=True))
    images = drawn(2, 4, 3, 8, 8, seed=5)
    together = BatchNormStatistics(1.0).bind(seen, torch.zeros(2).long())(images, images)
    for client in range(2):
        alone = BatchNormStatistics(1.0).bind(seen.take([client]), torch.zeros(1).long())
        assert torch.allclose(alone(images[[client]], images[[client]]), together[client])


def test_statistics_of_a_model_without_any_are_refused() -> None:
    model = settled(nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)))
    seen = replace(seen_in(scene(model, 1)))
    images = drawn(1, 1, 3, 8, 8)
    with pytest.raises(AssertionError, match="no normalization layer"):
        BatchNormStatistics().bind(seen, torch.zeros(1).long())(images, images)
