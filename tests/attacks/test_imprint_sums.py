"""Sums over clients: the server sees a group's updates as one, and reads its pictures all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, MEAN, SCENES, STD, drawn, fedavg, four_pictures, scene, seen_in, usual
from torch import nn

from gradveil.attacks.cah import cah
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.linear_model import linear_model
from gradveil.attacks.rtf import rtf
from gradveil.attacks.unmix import unmix
from gradveil.audit.plan import diagnostic
from gradveil.config import build, from_tables
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.oasis import Oasis
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from


def logistic() -> nn.Module:
    with weights_from(0):
        return nn.Sequential(Normalize(MEAN, STD), nn.Flatten(), nn.Linear(192, CLASSES)).double()


def apart(scenario: Scenario) -> Scenario:
    """The members of every group as clients of their own."""
    count = scenario.aggregate
    private = Batch(*(x.flatten(0, 1).unflatten(0, (len(scenario.names) * count, -1)) for x in scenario.private))
    names = tuple(f"{name}.{member}" for name in scenario.names for member in range(count))
    return replace(scenario, private=private, names=names, aggregate=1)


@pytest.mark.parametrize("name", ["four pictures", "FedAvg", "batch statistics, shared"])
@pytest.mark.parametrize("defense", [Defense(), Gaussian(scale=0.1)])
def test_a_sum_is_the_mean_of_its_members_updates(name: str, defense: Defense) -> None:
    grouped = replace(SCENES[name](), aggregate=2)
    seen, members = seen_in(grouped, defense), seen_in(apart(grouped), defense)
    for key, u in seen.update.items():
        assert torch.allclose(u, members.update[key].unflatten(0, (-1, 2)).mean(1), rtol=0, atol=1e-15)
    for key, s in (seen.statistics or {}).items():
        assert torch.allclose(s, members.statistics[key].unflatten(0, (-1, 2)).mean(1))  # type: ignore[index]


@pytest.mark.parametrize("count", [2, 4])
def test_of_one_step_a_sum_is_the_update_of_one_client_with_all_pictures(count: int) -> None:
    plain, grouped = seen_in(four_pictures()), seen_in(replace(four_pictures(), aggregate=count))
    assert (grouped.examples, grouped.names) == (plain.examples, plain.names)
    assert torch.equal(grouped.labels, plain.labels)  # type: ignore[arg-type]
    for key, u in plain.update.items():
        assert torch.allclose(grouped.update[key], u, rtol=0, atol=1e-14)


def test_members_draw_numbers_of_their_own() -> None:
    noise = [seen_in(replace(four_pictures(1), aggregate=k), Gaussian(scale=1.0)).update["fc.weight"] for k in (1, 4)]
    assert 0.4 < (noise[1].std() / noise[0].std()).item() < 0.6  # four draws in the mean


def test_the_attacker_imitates_all_minibatches_of_a_step_at_once() -> None:
    assert seen_in(replace(fedavg(), aggregate=2)).training.batch_size == 4
    assert seen_in(fedavg()).training.batch_size == 2


def test_the_planted_layer_reads_through_the_sum() -> None:
    scenario = replace(scene(usual(), 2, 8, threat=ThreatModel(may_plant=True)), aggregate=4)
    shade = torch.linspace(0.3, 1.0, 8).double().view(1, 8, 1, 1, 1)
    scenario = replace(scenario, private=Batch(scenario.private.images * shade, scenario.private.labels))
    attack = rtf(neurons=512)
    seen, truth = observe(scenario, Defense(), attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0))
    shown = align(got.images, truth.private.images, got.found).images
    assert (peak_signal_to_noise(shown, truth.private.images) > 150).double().mean() > 0.8


ACTIVE: dict[str, tuple[Attack, Defense]] = {
    "rtf": (rtf(neurons=256), Defense()),
    "rtf, sparse": (rtf(neurons=256, sparse=True), Defense()),
    "rtf, random": (rtf(neurons=256, functional="random"), Oasis(transforms="major")),
    "cah": (cah(neurons=256, examples=8), Defense()),
    "cah, separate": (cah(neurons=256, examples=8, separate="hflip"), Oasis(transforms="hflip")),
    "unmix": (unmix(neurons=256), Oasis(transforms="hflip+vflip")),
    "linear-model": (linear_model(), Defense()),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_every_attack_reads_a_sum_of_clients_as_one_client_with_all_their_pictures(name: str) -> None:
    attack, defense = ACTIVE[name]
    pictures = photos(size=8).images.double()[::9]
    model = logistic() if name == "linear-model" else usual()
    examples = 4 if name == "linear-model" else 8  # of which no label may repeat
    plain = scene(model, 1, examples, threat=ThreatModel(may_plant=True, knows_defense=True))
    known = Batch(pictures[40:], torch.zeros(len(pictures) - 40, CLASSES).double())
    plain = replace(plain, private=Batch(pictures[None, :examples], plain.private.labels), public=known)
    scores = {}
    for clients in (1, 4):
        seen, truth = observe(replace(plain, aggregate=clients), defense, attack, Seed(0))
        got = attack.reconstruct(seen, Seed(0))
        shown = align(got.images, truth.private.images, got.found).images
        scores[clients] = peak_signal_to_noise(shown, truth.private.images).clamp_max(60)
    assert torch.allclose(scores[1], scores[4], atol=0.1)
    assert (scores[4] > 50).double().mean() >= 0.5


def test_passive_attacks_see_one_large_batch() -> None:
    seen = seen_in(replace(scene(usual(), 1, 4), aggregate=2))
    assert invertgrad(steps=2).reconstruct(seen, Seed(0)).images.shape == (1, 4, 3, 8, 8)


def test_the_positive_control_has_no_sums() -> None:
    assert diagnostic(replace(four_pictures(), aggregate=2)).aggregate == 1


def test_config() -> None:
    raw = {"scenario": {"aggregate": 3, "batch_size": 2, "images": 4, "data": "digits"},
           "also": {"aggregate": [1, 5]}}  # fmt: skip
    audit = build(from_tables(raw))
    assert audit.scenario.name == "digits-lenet-b2-k3"
    assert audit.scenario.private.images.shape[:2] == (4, 6)
    assert [(s.aggregate, s.private.images.shape[1]) for s in audit.also] == [(1, 2), (5, 10)]
    assert torch.equal(audit.also[0].private.images.flatten(0, 1), audit.scenario.private.images.flatten(0, 1)[:8])
    with pytest.raises(ConfigError, match="aggregate"):
        from_tables({"scenario": {"aggregate": 0}})


def test_a_group_does_not_depend_on_the_others() -> None:
    scenario = replace(fedavg(), aggregate=2)
    others = scenario.private.images.clone()
    others[[0, 2]] = drawn(2, 4, 3, 8, 8, seed=77)
    changed = replace(scenario, private=Batch(others, scenario.private.labels))
    one, other = (seen_in(s, Gaussian(scale=0.1)).take([1]).update for s in (scenario, changed))
    assert all(torch.equal(one[key], other[key]) for key in one)
