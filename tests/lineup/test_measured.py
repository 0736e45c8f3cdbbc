"""The figures that the line-up was designed by: an untrained LeNet that takes pictures as they are, CIFAR-100."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.defenses import parse_defense
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import LineUp
from gradveil.models import MODELS

VICTIMS, CANDIDATES, THEIRS = 30, 1001, 99  # of whom the figures are


@pytest.mark.more
@pytest.mark.parametrize(
    ("defense", "named"),
    [("prune:ratio=0.99", 1.0), ("sign", 1.0), ("gaussian:scale=1", 0.79), ("dpsgd:noise=0.05", 0.53),
     ("dpsgd:noise=0.1", 0.074), ("dpsgd:noise=0.2", 0.024)],
)  # fmt: skip
def test_the_share_named_is_as_measured(shared_data: Path, defense: str, named: float) -> None:
    dataset = load("cifar100", root=str(shared_data), split="test")
    order = torch.randperm(len(dataset.images), generator=Seed(5).rng())
    victims, others = order[:VICTIMS], order[VICTIMS : VICTIMS + CANDIDATES - 1]
    model = MODELS["lenet"](classes=100, shape=(3, 32, 32), seed=0).eval()
    private = Batch(dataset.images[victims].unsqueeze(1), dataset.targets[victims].unsqueeze(1))
    names = tuple(f"c{number}" for number in range(VICTIMS))
    scenario = Scenario(name="measured", model=model, private=private, names=names)
    gallery = Gallery(images=dataset.images[others], labels=dataset.targets[others])
    lineup = LineUp(scenario=scenario, defense=parse_defense(defense), gallery=gallery, seed=Seed(), standins=2)
    client = Client.of(scenario, lineup.defense)
    places = [place for number in range(VICTIMS) for place in places_of(scenario, number)]
    found = lineup.hold(places, [[client.play(place, place.picture, Seed()).update] for place in places])
    trials = [rank for one in found for rank in one.ranks]
    share = sum(rank == 1 for rank in trials) / len(trials)
    error = math.sqrt(max(named * (1 - named), 0.02) * (1 / VICTIMS + 1 / THEIRS))
    assert abs(share - named) < 3.5 * error
