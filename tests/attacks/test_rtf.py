"""Robbing the Fed: alone in a bin is exact, empty bins are never found, and the order of a batch does not count."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from scenes import CLASSES, as_float32, drawn, one_hot, scene, smooth, usual
from torch import Tensor, nn

from gradveil.attacks.imprint.module import Imprint
from gradveil.attacks.rtf import RobbingTheFed, rtf
from gradveil.core.attack import Reconstruction
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.prune import Prune
from gradveil.engine.chunks import cpu_bytes
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.start import weights_from

MALICIOUS = ThreatModel(may_plant=True)
NO_DEFENSE = Defense()
VARIANTS: list[dict[str, Any]] = [
    {},
    {"sparse": True},
    {"functional": "fourier:32"},
    {"functional": "random", "sparse": True},
    {"connection": "add"},
    {"connection": "linear"},
    {"connection": "replace"},
    {"at": "conv1"},
    {"at": "conv1", "sparse": True},
    {"bins": "laplace"},
]


@cache
def photographs() -> Tensor:
    return photos(size=8).images.double()[::9]


def photo_scene(clients: int = 2, examples: int = 8, public: bool = True, model: nn.Module | None = None) -> Scenario:
    pictures = photographs()
    scenario = scene(model or usual(), clients, examples, threat=MALICIOUS)
    private = pictures[: clients * examples].unflatten(0, (clients, examples))
    known = Batch(pictures[40:], torch.zeros(len(pictures) - 40, CLASSES).double()) if public else None
    return replace(scenario, private=Batch(private, scenario.private.labels), public=known)


def attacked(
    scenario: Scenario, attack: RobbingTheFed, defense: Defense = NO_DEFENSE
) -> tuple[Observation, Truth, Reconstruction]:
    seen, truth = observe(scenario, defense, attack, Seed(0))
    return seen, truth, attack.reconstruct(seen, Seed(0))


def scored(got: Reconstruction, truth: Truth) -> Tensor:
    pictures = truth.private.images
    return peak_signal_to_noise(align(got.images, pictures, got.found).images, pictures)


def occupancy(seen: Observation, pictures: Tensor, at: str = "") -> Tensor:
    """The bin of every picture, counted by the planted layer itself: [client, example]."""
    imprint = next(layer for layer in seen.model.modules() if isinstance(layer, Imprint))
    inputs: list[Tensor] = []
    hook = imprint.register_forward_pre_hook(lambda _layer, given: inputs.append(given[0].flatten(1)))
    seen.model.eval()(pictures.flatten(0, 1))
    hook.remove()
    return (imprint.first(inputs[0]) > 0).sum(1).view(pictures.shape[:2])


@pytest.mark.parametrize("options", VARIANTS)
def test_who_is_alone_in_a_bin_is_read_to_rounding_and_nobody_else_is_found(options: dict[str, Any]) -> None:
    seen, truth, got = attacked(photo_scene(), rtf(neurons=64, **options))
    psnr = scored(got, truth)
    for bins, found, decibels in zip(occupancy(seen, truth.private.images), got.found, psnr, strict=True):
        alone = torch.tensor([bool((bins == b).sum() == 1 and b > 0) for b in bins])
        assert alone.sum() >= 4
        assert (decibels[alone] > 200 - 1e-6).all()  # rounding of float64
        assert found.sum() == len(set(bins.tolist()) - {0})


@pytest.mark.parametrize("options", VARIANTS)
def test_float32_ends_at_its_rounding(options: dict[str, Any]) -> None:
    scenario = photo_scene(examples=4)
    public = Batch(*(x.float() for x in scenario.public or ()))
    scenario = replace(as_float32(scenario), public=public)
    seen, truth, got = attacked(scenario, rtf(neurons=256, **options))
    bins = occupancy(seen, truth.private.images)
    alone = torch.stack([torch.tensor([bool((row == b).sum() == 1) for b in row]) for row in bins])
    assert (scored(got, truth)[alone] > 90).all()
    assert (got.found.sum(1) <= torch.tensor([len(set(row.tolist())) for row in bins])).all()


def test_without_public_pictures_the_bins_are_assumed() -> None:
    for functional in ("mean", "fourier:32", "random"):
        _, truth, got = attacked(photo_scene(public=False), rtf(functional=functional))
        assert (scored(got, truth) > 150).double().mean() > 0.8


@pytest.mark.parametrize("sparse", [False, True])
def test_the_order_of_a_batch_changes_nothing(sparse: bool) -> None:
    scenario, order = photo_scene(1), [3, 1, 7, 0, 2, 6, 5, 4]
    shuffled = replace(scenario, private=Batch(*(x[:, order] for x in scenario.private)))
    one, other = (attacked(s, rtf(sparse=sparse))[2] for s in (scenario, shuffled))
    assert torch.equal(one.found, other.found)
    assert torch.allclose(one.images, other.images, rtol=0, atol=1e-9)


def test_two_in_one_bin_come_out_as_one_mixture() -> None:
    scenario = photo_scene(1, 2)
    twins = scenario.private.images.clone()
    twins[0, 1] = twins[0, 0].flip(-1)  # the same mean
    _, truth, got = attacked(replace(scenario, private=Batch(twins, scenario.private.labels)), rtf())
    assert got.found.sum() == 1
    assert got.loss.tolist() == [0.5]
    assert scored(got, truth).max() < 60
    assert "1 of 256 bins" in got.notes[0]
    assert attacked(replace(scenario, private=Batch(twins, scenario.private.labels)), rtf(functional="random"))[
        2
    ].found.all()


def test_one_shot_takes_who_falls_into_the_one_bin() -> None:
    scenario = photo_scene(1, 32)
    seen, truth, got = attacked(scenario, rtf(target=1 / 32))
    imprint = next(layer for layer in seen.model.modules() if isinstance(layer, Imprint))
    assert imprint.first.out_features == 2
    inside = occupancy(seen, truth.private.images)[0] == 1
    assert got.found.sum() == min(1, int(inside.sum()))
    if inside.sum() == 1:
        assert scored(got, truth)[0][inside].item() > 150


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 10), (1, 5, 7)])
@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"functional": "random"}])
def test_any_shape_without_normalization(shape: tuple[int, int, int], options: dict[str, Any]) -> None:
    with weights_from(5):
        model = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(CLASSES)).double()
        model(torch.zeros(1, *shape).double())
    scenario = scene(model, 1, 4, shape=shape, threat=MALICIOUS)
    spread = torch.tensor([0.2, 0.5, 0.8, 1.0]).double().view(1, 4, 1, 1, 1)
    scenario = replace(scenario, private=Batch(scenario.private.images * spread, scenario.private.labels))
    _, truth, got = attacked(scenario, rtf(neurons=512, **options))
    assert (scored(got, truth) > 150).double().mean() >= 0.75


def test_weight_decay_is_taken_off() -> None:
    scenario = replace(photo_scene(), training=LocalTraining(weight_decay=0.1, rate=0.5))
    for sparse in (False, True):
        _, truth, got = attacked(scenario, rtf(sparse=sparse))
        assert (scored(got, truth) > 120).double().mean() > 0.8


def test_several_steps_leave_a_note_and_pictures() -> None:
    scenario = replace(photo_scene(examples=2), training=LocalTraining(steps=3, rate=1e-6))
    _, truth, got = attacked(scenario, rtf(sparse=True))
    assert "several local steps" in got.notes[-1]
    assert (scored(got, truth) > 60).all()


def test_a_large_gain_drowns_noise_of_a_fixed_size() -> None:
    scenario = photo_scene(examples=4, model=smooth())
    quiet, loud = (attacked(scenario, rtf(neurons=64, gain=g), Gaussian(scale=1e-2)) for g in (1.0, 1e6))
    assert scored(loud[2], loud[1]).median() > 30 > 15 > scored(quiet[2], quiet[1]).median()


def test_pruning_spares_the_sparse_rows() -> None:
    scenario = photo_scene(examples=4)
    dense, sparse = (attacked(scenario, rtf(neurons=128, sparse=s), Prune(ratio=0.9)) for s in (False, True))
    assert scored(sparse[2], sparse[1]).median() > 100 > 30 > scored(dense[2], dense[1]).median()


def test_a_dead_model_gives_nothing() -> None:
    model = smooth()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    _, _, got = attacked(photo_scene(model=model), rtf())
    assert not got.found.any()
    assert got.images.eq(0.5).all()
    assert got.loss.tolist() == [1, 1]


def test_rounds_are_averaged() -> None:
    scenario = photo_scene(examples=4)
    once, often = (
        attacked(replace(scenario, threat=replace(MALICIOUS, rounds=r)), rtf(gain=1e4), Gaussian(scale=1e-2))
        for r in (1, 16)
    )
    assert scored(often[2], often[1]).mean() > scored(once[2], once[1]).mean() + 5


def test_repeated_labels_and_hidden_ones_do_not_matter() -> None:
    scenario = photo_scene(1)
    same = one_hot(1, 1).expand(1, 8, CLASSES)
    hidden = replace(
        scenario, private=Batch(scenario.private.images, same), threat=replace(MALICIOUS, knows_labels=False)
    )
    _, truth, got = attacked(hidden, rtf(functional="random"))
    assert (scored(got, truth) > 150).all()


@pytest.mark.parametrize("target", [-0.1, 1.0])
def test_a_target_is_a_share(target: float) -> None:
    with pytest.raises(ConfigError, match="target"):
        rtf(target=target)


def test_pictures_far_from_the_public_ones_are_still_in_a_bin() -> None:
    scenario = photo_scene(1, 2)
    odd = Batch(torch.stack([drawn(3, 8, 8) * 0, drawn(3, 8, 8) * 0 + 1])[None], scenario.private.labels)
    for sparse in (False, True):
        _, truth, got = attacked(replace(scenario, private=odd), rtf(sparse=sparse))
        assert (scored(got, truth) > 150).all()


def test_reading_takes_memory_for_the_pictures_and_not_for_the_units() -> None:
    """With 4,096 units and pictures of 224 x 224 the gradient is 2.5 GB: nothing of its size is made beside it."""
    taken = {}
    for neurons in (64, 1024):
        seen = observe(photo_scene(clients=1), NO_DEFENSE, rtf(neurons=neurons), Seed(0))[0]
        taken[neurons] = cpu_bytes(lambda seen=seen, neurons=neurons: rtf(neurons=neurons).reconstruct(seen, Seed(0)))
    added, layer = taken[1024] - taken[64], (1024 - 64) * 3 * 8 * 8 * 8
    assert added < 0.2 * layer  # a few numbers for every unit
