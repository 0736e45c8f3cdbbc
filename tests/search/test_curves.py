"""Similarity on the way to a picture, in a straight line and along an attack."""

from __future__ import annotations

import pytest
import torch

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.snapshots import trace_search
from gradveil.models import MODELS
from gradveil.search.curves import POINTS, Watch, curves, moments
from gradveil.transforms.policy import Policy

EXACT = Compute(precision="float64")


@pytest.fixture(scope="module")
def watch() -> Watch:
    rng = Seed(3).rng()
    images, labels = torch.rand(3, 1, 8, 8, generator=rng), torch.eye(4)[torch.tensor([0, 3, 1])]
    model = MODELS["lenet"](classes=4, shape=(1, 8, 8)).double()
    return Watch(model=model, pictures=Batch(images, labels), attack=invertgrad(steps=40, tv=1e-3), compute=EXACT,
                 seed=Seed(1))  # fmt: skip


def test_a_straight_line_ends_at_the_picture(watch: Watch) -> None:
    similarity = watch.straight(Policy.parse("3-1-7")).flat()
    assert similarity.shape == (3, POINTS)
    assert torch.allclose(similarity[:, -1], torch.ones(3, dtype=torch.float64))
    assert bool((similarity[:, 0] < 0.999).all())


def test_an_attack_comes_nearer(watch: Watch) -> None:
    steps, products = watch.attacked(Policy.parse("none"))
    similarity = products.flat()
    assert steps == moments(40)
    assert bool((similarity[:, -1] > similarity[:, 0]).all())


def test_curves_have_every_policy_with_doubt_and_layers(watch: Watch) -> None:
    found = curves(watch, {"none": Policy.parse("none"), "best": Policy.parse("15")})
    for label, policy in (("none", "none"), ("best", "15")):
        one = found[label]
        assert one["policy"] == policy
        assert all(low <= mean <= high for _, mean, low, high in one["attack"])
        assert list(one["layers"]) == watch.layers
        assert all(len(values) == len(one["steps"]) for values in one["layers"].values())


def test_looking_more_often_changes_nothing(watch: Watch) -> None:
    images, labels = (x[:, None].double() for x in watch.pictures)
    scenario = Scenario(name="s", model=watch.model, private=Batch(images, labels), names=("a", "b", "c"))
    seen, _ = observe(scenario, Defense(), watch.attack, Seed(0))
    often = trace_search(watch.attack, seen, Seed(2), EXACT, at=[0, 3, 7, 20])
    seldom = trace_search(watch.attack, seen, Seed(2), EXACT, at=[7, 20])
    assert torch.equal(often[:, 2:], seldom)
    assert not torch.equal(often[:, 0], often[:, 1])


def test_the_way_leads_to_what_the_attack_reports(watch: Watch) -> None:
    images, labels = (x[:, None].double() for x in watch.pictures)
    scenario = Scenario(name="s", model=watch.model, private=Batch(images, labels), names=("a", "b", "c"))
    seen, _ = observe(scenario, Defense(), watch.attack, Seed(0))
    attack = invertgrad(steps=40, tv=1e-3, restarts=1)
    last = trace_search(attack, seen, Seed(2), EXACT, at=[40])[:, 0]
    best = attack.reconstruct(seen, Seed(2), EXACT).images
    assert float((last - best).abs().mean()) < 0.05  # the best point is at or near the last
