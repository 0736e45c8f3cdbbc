"""Restarts that are pulled together, noise along the way, and GradInversion that is made of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, drawn, four_pictures, one_picture, perceptron, scene, seen_in, smooth, usual
from torch import Tensor

from gradveil.attacks.gradinversion import gradinversion_full, gradinversion_full_paper
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.engine import chunks
from gradveil.engine.labels import given_or_lowest
from gradveil.engine.optimizer import Adam, Langevin, WarmCosine
from gradveil.engine.priors.group import GroupConsistency, best_shift, roll, together
from gradveil.engine.priors.prior import BatchNormStatistics, TotalVariation
from gradveil.metrics.psnr import peak_signal_to_noise

DOUBLE = Compute(precision="float64")


def penalty(pictures: Tensor, restarts: int, registered: bool = False) -> Tensor:
    """Of [trial, example, channel, height, width]."""
    seen = seen_in(one_picture(1)).take([0] * len(pictures))
    numbers = torch.arange(restarts).repeat(len(pictures) // restarts)
    return GroupConsistency(1.0, registered).bind(seen, numbers)(pictures, pictures)


def test_the_way_to_the_mean_by_hand() -> None:
    level = torch.tensor([0.0, 0.4, 0.2, 1.0, 1.0, 0.4]).double()  # two clients of three restarts
    pictures = level.view(6, 1, 1, 1, 1).expand(6, 1, 3, 8, 8)
    assert torch.allclose(penalty(pictures, 3), torch.tensor([0.04, 0.04, 0, 0.04, 0.04, 0.16]).double(), atol=1e-12)


def test_a_single_restart_agrees_with_itself() -> None:
    assert penalty(drawn(3, 1, 3, 8, 8), 1).abs().max() == 0


def test_the_slope_leads_to_the_mean() -> None:
    pictures = drawn(4, 2, 3, 8, 8).requires_grad_()
    (slope,) = torch.autograd.grad(penalty(pictures, 4).sum(), pictures)
    away = pictures - pictures.mean(0)
    assert torch.allclose(slope, 2 * away / pictures[0].numel())


def test_a_restart_that_is_no_number_does_not_take_the_others_along() -> None:
    pictures = drawn(3, 1, 3, 8, 8)
    pictures[1] = torch.nan
    got = penalty(pictures, 3)
    assert torch.allclose(got[[0, 2]], penalty(pictures[[0, 2]], 2))
    assert got[1].isnan()


def test_torn_restarts_are_refused() -> None:
    seen = seen_in(one_picture(1)).take([0, 0, 0])
    with pytest.raises(AssertionError, match="torn"):
        GroupConsistency().bind(seen, torch.tensor([1, 2, 0]))


@pytest.mark.parametrize("by", [(0, 0), (1, 0), (0, -2), (2, 1), (-1, -2)])
def test_a_rolled_picture_is_registered(by: tuple[int, int]) -> None:
    picture = drawn(2, 3, 8, 9)
    rolled = picture.roll(by, (-2, -1))
    shift = best_shift(rolled, picture)
    assert [((s + 4) % n) - 4 for s, n in zip(shift[0].tolist(), (8, 9), strict=True)] == list(by)
    assert torch.equal(roll(picture, shift), rolled)
    assert torch.equal(roll(rolled, -shift), picture)


def test_the_reach_bounds_the_shift() -> None:
    picture = drawn(1, 3, 8, 8)
    shift = best_shift(picture.roll(4, -1), picture, reach=0.25)[0]
    assert all(min(s, 8 - s) <= 2 for s in shift.tolist())


def test_shifted_copies_agree_once_they_are_registered() -> None:
    """Two of three lie in place, so their mean shows where."""
    picture = photos(size=8, limit=1).images.double()
    pictures = torch.stack([picture, picture, picture.roll(1, -1)])
    assert penalty(pictures, 3).min() > 1e-4
    assert penalty(pictures, 3, registered=True).max() < 1e-20


def test_which_trials_belong_together() -> None:
    assert together((TotalVariation(),), 4) == 1
    assert together((TotalVariation(), GroupConsistency()), 4) == 4


@pytest.mark.parametrize("size", [1, 3, 4, 7, 99])
def test_chunks_never_tear_a_group(size: int) -> None:
    trials, asked = [(client, restart) for client in range(5) for restart in range(3)], []

    def attack(part: chunks.Trials) -> chunks.Trials:
        asked.append(part)
        if len(part) > 6:
            raise torch.OutOfMemoryError("out of memory")
        return part

    parts = chunks.run(attack, trials, Compute(chunk=size), lambda: 1, together=3)
    assert [trial for part in parts for trial in part] == trials
    assert all(len(part) % 3 == 0 and part[0][1] == 0 for part in asked)


def test_a_group_that_does_not_fit_is_raised() -> None:
    def attack(part: chunks.Trials) -> chunks.Trials:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        chunks.run(attack, [(0, 0), (0, 1)], Compute(chunk=2), lambda: 1, together=2)


# noise


def test_noise_is_normal_and_anew_in_every_step() -> None:
    shaken = Langevin(inside=Adam(rate=0.5), noise=0.2)
    z = {"pixels": drawn(3, 1, 3, 16, 16)}
    zero, state, moves = {"pixels": torch.zeros_like(z["pixels"])}, shaken.init(z), []
    for _ in range(20):
        moved, state = shaken.step(z, torch.zeros(3), zero, state, torch.tensor(0.0))
        moves.append((moved["pixels"] - z["pixels"]).flatten() / (0.2 * 0.5))
    noise = torch.stack(moves)
    assert noise.mean().abs() < 0.02
    assert (noise.std() - 1).abs() < 0.02
    assert (noise.pow(4).mean() - 3).abs() < 0.15
    assert (torch.corrcoef(noise) - torch.eye(20)).abs().max() < 0.1


def test_noise_depends_on_the_start_alone() -> None:
    shaken, pixels = Langevin(inside=Adam()), drawn(3, 1, 3, 8, 8)
    together, alone = shaken.init({"pixels": pixels}), shaken.init({"pixels": pixels[[1]]})
    assert torch.equal(together["stream.pixels"][1], alone["stream.pixels"][0])
    assert not torch.equal(together["stream.pixels"][1], together["stream.pixels"][2])


def test_a_rate_warms_up_and_falls_along_a_cosine() -> None:
    factor = WarmCosine(warm=0.1)
    got = [factor(torch.tensor(p)).item() for p in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert got == pytest.approx([0.02, 0.5, 1, 0.5, 0], abs=1e-6)
    assert WarmCosine(warm=0)(torch.tensor(0.0)).item() == 1


# labels


def test_labels_by_the_lowest_weights() -> None:
    labels = torch.eye(CLASSES).double()[torch.tensor([[0, 2, 4], [1, 2, 3]])]
    seen = seen_in(scene(perceptron(), 2, 3, labels=labels, threat=ThreatModel(knows_labels=False)))
    assert torch.equal(given_or_lowest(seen), labels)
    assert given_or_lowest(replace(seen, labels=labels)) is labels


def test_more_examples_than_classes_take_the_classes_in_turn() -> None:
    seen = seen_in(scene(perceptron(), 1, 7, threat=ThreatModel(knows_labels=False)))
    assert given_or_lowest(seen).sum(1).sort().values.tolist() == [[1, 1, 1, 2, 2]]


# all of it


def photographs(model, clients: int = 3, examples: int = 1, size: int = 8) -> Scenario:
    pictures = photos(size=size, limit=clients * examples).images.double().unflatten(0, (clients, examples))
    scenario = scene(model, clients, examples)
    return replace(scenario, private=Batch(pictures, scenario.private.labels))


def test_a_model_without_statistics_leaves_their_prior_out_and_says_so() -> None:
    attack = gradinversion_full(steps=3, restarts=2)
    without = attack.reconstruct(seen_in(photographs(smooth())), Seed(0), DOUBLE)
    assert [note for note in without.notes if "normalization statistics" in note]
    assert not attack.reconstruct(seen_in(one_picture()), Seed(0), DOUBLE).notes
    assert any(isinstance(prior, BatchNormStatistics) for prior in attack.priors)


def test_weights_of_zero_leave_their_priors_out() -> None:
    assert gradinversion_full(tv=0.0, norm=0.0, statistics=0.0, group=0.0).priors == ()
    assert isinstance(gradinversion_full(noise=0.0).optimizer, Adam)
    assert isinstance(gradinversion_full_paper().optimizer, Langevin)


def test_a_group_ends_nearer_together() -> None:
    seen = seen_in(four_pictures(2))

    def spread(group: float) -> float:
        attack = gradinversion_full(steps=60, restarts=3, group=group)
        ends: list[Tensor] = []
        watching = replace(attack, select=lambda images, total, match: (ends.append(images), total.argmin(1))[1])
        watching.reconstruct(seen, Seed(0), DOUBLE)
        return ends[0].std(1).mean().item()

    assert spread(1.0) < 0.5 * spread(0.0)


@pytest.mark.slow
def test_together_they_see_more() -> None:
    """Restarts that disagree are averaged out of what each of them made up."""
    scenario = photographs(usual((3, 16, 16)), 3, 4, size=16)
    seen, pictures = seen_in(scenario), scenario.private.images

    def quality(group: float) -> float:
        got = gradinversion_full(steps=120, tv=1e-2, group=group).reconstruct(seen, Seed(0), DOUBLE)
        return peak_signal_to_noise(got.images, pictures).mean().item()

    assert quality(0.3) > quality(0.0) + 0.5


@pytest.mark.parametrize("options", [{"registered": True}, {"noise": 0.2}])
@pytest.mark.parametrize("chunk", [1, 4])
def test_any_chunk_gives_the_same_with_every_option(options: dict, chunk: int) -> None:
    seen, attack = seen_in(photographs(smooth())), gradinversion_full(steps=20, restarts=3, **options)
    parts = attack.reconstruct(seen, Seed(0), replace(DOUBLE, chunk=chunk))
    assert (parts.images - attack.reconstruct(seen, Seed(0), DOUBLE).images).abs().max() < 1e-9
