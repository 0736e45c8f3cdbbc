"""Several rounds of one client: what the server keeps of them, and what their mean is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import four_pictures, one_picture, perceptron, scene, seen_in, smooth
from torch import Generator

from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.linear import linear
from gradveil.config import AuditConfig, ScenarioConfig, build
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.data.photos import photos
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.precode import Precode
from gradveil.metrics.psnr import peak_signal_to_noise


def played(scenario: Scenario, rounds: int, **knows: bool) -> Scenario:
    return replace(scenario, threat=ThreatModel(rounds=rounds, **knows))


def flat(update: Update) -> torch.Tensor:
    return torch.cat([u.flatten() for u in update.values()])


def test_the_last_round_is_the_one_there_was_and_the_others_are_its_history() -> None:
    one, three = (seen_in(played(four_pictures(), rounds), Gaussian(scale=0.1)) for rounds in (1, 3))
    assert one.history == ()
    assert len(three.history) == 2
    assert torch.equal(flat(three.update), flat(one.update))
    everyone = [three, *three.history]
    assert len({flat(seen.update).sum().item() for seen in everyone}) == 3  # new numbers in every round
    assert {seen.names for seen in everyone} == {one.names}
    again = seen_in(played(four_pictures(), 2), Gaussian(scale=0.1))
    assert torch.equal(flat(again.history[0].update), flat(three.history[0].update))


def test_without_randomness_every_round_is_the_same() -> None:
    seen = seen_in(played(four_pictures(), 4))
    assert all(torch.equal(flat(past.update), flat(seen.update)) for past in seen.history)
    assert torch.allclose(flat(seen.average_rounds().update), flat(seen.update), rtol=1e-14)


@pytest.mark.parametrize("defense", [Gaussian(scale=0.1), Laplacian(scale=0.1)])
def test_sixteen_rounds_leave_a_quarter_of_the_noise(defense: Defense) -> None:
    scenario = four_pictures()
    plain = flat(seen_in(scenario).update)
    seen = seen_in(played(scenario, 16), defense)
    mean = seen.average_rounds()
    everyone = torch.stack([flat(one.update) for one in (*seen.history, seen)])
    assert torch.allclose(flat(mean.update), everyone.mean(0), rtol=1e-12, atol=1e-15)
    assert mean.history == ()
    left = (flat(mean.update) - plain).std() / (everyone - plain).std()
    assert left.item() == pytest.approx(1 / 4, rel=0.06)


def test_one_round_is_left_as_it_is() -> None:
    seen = seen_in(one_picture())
    assert seen.average_rounds() is seen


class Redraws(Defense):
    """Feeds other pictures in every round."""

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(torch.rand(batch.images.shape, generator=rng).to(batch.images), batch.labels)


def test_one_who_knows_that_pictures_change_keeps_to_the_last_round() -> None:
    unaware, aware = (seen_in(played(one_picture(), 3, knows_defense=k), Redraws()) for k in (False, True))
    assert torch.equal(flat(aware.average_rounds().update), flat(aware.update))
    assert aware.average_rounds().history == ()
    assert not torch.equal(flat(unaware.average_rounds().update), flat(unaware.update))


def leaked(attack: Attack, scenario: Scenario, defense: Defense, rounds: int) -> float:
    seen = seen_in(played(scenario, rounds), defense)
    got = attack.reconstruct(seen, Seed(0), Compute(precision="float64"))
    return peak_signal_to_noise(got.images, scenario.private.images).mean().item()


def photographs(scenario: Scenario) -> Scenario:
    pictures = photos(size=8, limit=3).images.double().unsqueeze(1)
    return replace(scenario, private=Batch(pictures, scenario.private.labels))


def test_a_closed_form_sees_more_of_sixteen_rounds_than_of_one() -> None:
    scenario, noise = photographs(scene(perceptron())), Gaussian(scale=1e-3)
    one, many = (leaked(linear(), scenario, noise, rounds) for rounds in (1, 16))
    assert many > one + 6


@pytest.mark.parametrize("defense", [Gaussian(scale=0.2), Precode(size=8)])
def test_a_search_sees_more_of_sixteen_rounds_than_of_one(defense: Defense) -> None:
    scenario, attack = photographs(scene(smooth())), invertgrad(steps=40, tv=1e-3)
    one, many = (leaked(attack, scenario, defense, rounds) for rounds in (1, 16))
    assert many > one + 1


def test_the_rounds_of_a_config_reach_the_threat_model() -> None:
    config = AuditConfig(scenario=ScenarioConfig(rounds=3, images=2, data_options={"size": 16, "count": 60}))
    audit = build(config)
    assert audit.scenario.threat.rounds == 3
