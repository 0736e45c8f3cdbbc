"""What a line-up names: with every defense of the catalogue, in every kind of round; and what it is not fooled by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rooms import gallery_of, hold, trials_of
from torch import nn
from toys import CLASSES, scenario

from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import LocalTraining, Received, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Update
from gradveil.defenses import DEFENSES, parse_defense
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.prune import Prune
from gradveil.defenses.stack import Stack
from gradveil.lineup import make
from gradveil.lineup.candidates import COPIES, Gallery, near_copies
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import LineUp, Ranks
from gradveil.models.start import weights_from

SETTINGS = {
    "one picture": {},
    "a batch": {"clients": 2, "examples": 3},
    "several steps": {"training": LocalTraining(steps=3, rate=0.05)},
    "steps through a batch": {"clients": 2, "examples": 4, "training": LocalTraining(steps=3, rate=0.05, batch_size=2)},
    "a sum": {"clients": 2, "examples": 4, "aggregate": 2},
    "labels not known": {"threat": ThreatModel(knows_labels=False)},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_without_a_defense_every_picture_is_named(setting: str) -> None:
    found = hold(standins=2, **SETTINGS[setting])
    assert {one.kind for one in found} == {"exact"}
    assert set(trials_of(found)) == {1}
    assert all(one.fits and one.replayed for one in found)
    assert {rank for one in found for rank in one.near["brighter"]} == {1}, "of noise, JPEG leaves no near copy"


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_update_of_another_names_at_chance(setting: str) -> None:
    found = hold(**SETTINGS[setting])
    assert sum(one.other == 1 for one in found) <= 2, "of 3 to 8, each by chance once in 20"
    assert len({one.other for one in found}) > 1


EVERY = {
    "gaussian": "gaussian:scale=1e-4", "laplacian": "laplacian:scale=1e-4", "dpsgd": "dpsgd:clip=1,noise=1e-4",
    "fedcdp": "fedcdp:clip=1,noise=1e-4", "prune": "prune:ratio=0.5", "topk": "topk:sparsity=0.5",
    "qsgd": "qsgd:bits=8", "svt": "svt:gamma=1,noise_var=1e3,fraction=0.5", "local-dp": "local-dp:epsilon=1e5",
    "ats": "ats:3-1-7", "loda": "loda:extractor=lenet:untrained,layers=all,steps=3,cache=no,public=digits",
}  # fmt: skip
KINDS = {"mixup": "bound", "instahide": "bound", "precode": "bound", "svt": "estimated"}


@pytest.mark.parametrize("name", sorted(set(DEFENSES) - {"stack", "loda", "loda-1", "loda-2", "loda-3", "soteria"}))
def test_a_mild_defense_hides_no_picture_from_who_has_candidates(name: str) -> None:
    defense = parse_defense(EVERY.get(name, name))
    found = hold(defense, clients=2, examples=4, gallery=gallery_of(11), model=network())
    assert set(trials_of(found)) == {1}
    assert {one.kind for one in found} == {KINDS.get(name, "exact")}
    assert all(one.fits for one in found)


def network() -> nn.Module:
    """Two layers, so that each defense finds what it acts on."""
    with weights_from(1):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.Sigmoid(), nn.Linear(16, CLASSES))


def test_much_noise_names_at_chance() -> None:
    trials = trials_of(hold(Gaussian(scale=1e3), clients=20, standins=4))
    assert sum(rank == 1 for rank in trials) <= 14, "5 expected of 100, 14 once in 5,000"


def test_noise_that_is_pruned_is_no_exact_likelihood() -> None:
    found = hold(Stack((Gaussian(scale=1e-3), Prune(ratio=0.5))))
    assert {one.kind for one in found} == {"estimated"}
    assert set(trials_of(found)) == {1}


class Silent(Defense):
    """Draws last, and does not say by which law."""

    def update(self, update: Update, rng: torch.Generator) -> Update:
        return {name: u + torch.randn(u.shape, generator=rng) for name, u in update.items()}

    def law(self, round: object) -> None:
        return None


def test_a_defense_without_a_likelihood_is_refused() -> None:
    with pytest.raises(NotApplicableError, match="no likelihood is known"):
        hold(Silent())


class Undeclared(Defense):
    """Draws, and does not say so: its law is that of a defense that draws nothing."""

    def update(self, update: Update, rng: torch.Generator) -> Update:
        return {name: u + 0.05 * torch.randn(u.shape, generator=rng) for name, u in update.items()}


def test_draws_that_nobody_declared_are_simulated() -> None:
    found = hold(Undeclared(), clients=8)
    assert {one.kind for one in found} == {"estimated"}
    assert sum(rank == 1 for rank in trials_of(found)) >= 6


def test_labels_that_nobody_knows_are_granted() -> None:
    known = gallery_of(19)
    found = hold(threat=ThreatModel(knows_labels=False), gallery=Gallery(images=known.images))
    assert {one.kind for one in found} == {"bound"}


def test_an_update_of_something_else_does_not_fit() -> None:
    played = scenario(3)
    places = [place for client in range(3) for place in places_of(played, client)]
    client = Client.of(played, Defense())
    sent = [client.play(place, place.picture, Seed()).update for place in places]

    def ranks(updates: list[Update]) -> list[Ranks]:
        lineup = LineUp(scenario=played, defense=Defense(), gallery=gallery_of(9), seed=Seed())
        return lineup.hold(places, [[one] for one in updates])

    assert all(one.fits for one in ranks(sent))
    for wrong in (sent[1:] + sent[:1], [{n: 0 * u for n, u in one.items()} for one in sent],
                  [{n: 1.5 * u for n, u in one.items()} for one in sent]):  # fmt: skip
        assert not any(one.fits or one.replayed for one in ranks(wrong))


@pytest.mark.parametrize("defense", [Defense(), Gaussian(scale=0.3), parse_defense("ats:3-1-7")])
def test_results_depend_on_no_chunk(defense: Defense, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hold(defense, clients=2, examples=2, standins=1)
    monkeypatch.setattr(make, "MOST_TOGETHER", 3)
    assert hold(defense, clients=2, examples=2, standins=1) == whole


def test_the_sum_of_shares_is_the_whole_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed once for all places, or with the whole batch for each."""
    quick = hold(Gaussian(scale=0.3), clients=3, examples=3, standins=1)
    monkeypatch.setattr(make, "_may_be_sum", lambda client, setting: False)
    assert hold(Gaussian(scale=0.3), clients=3, examples=3, standins=1) == quick


def test_batch_statistics_are_played_with_the_candidate_in_the_batch() -> None:
    with weights_from(2):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES))
    found = hold(clients=2, examples=3, model=model, training=LocalTraining(batchnorm="batch"))
    assert set(trials_of(found)) == {1}


def test_several_rounds_are_joined() -> None:
    """Noise of four rounds hides less than that of one."""

    def named(rounds: int) -> int:
        played = scenario(30)
        lineup = LineUp(scenario=played, defense=Gaussian(scale=1.0), gallery=gallery_of(19), seed=Seed())
        client = Client.of(played, lineup.defense)
        places = [place for number in range(30) for place in places_of(played, number)]
        seeds = [*(Seed().at("round", number) for number in range(rounds - 1)), Seed()]
        sent = [[client.play(place, place.picture, seed).update for seed in seeds] for place in places]
        return sum(one.ranks[0] == 1 for one in lineup.hold(places, sent))

    assert named(9) > named(1)


def test_draws_of_real_clients_are_not_granted() -> None:
    """Nobody knows them."""
    played = scenario(2, 4)
    mixed = parse_defense("mixup:k=2")
    client = Client.of(played, mixed)
    places = places_of(played, 0)
    update = client.play(places[0], places[0].picture, Seed()).update
    lineup = LineUp(scenario=_received(played), defense=mixed, gallery=gallery_of(5), seed=Seed())
    with pytest.raises(NotApplicableError, match="drew"):
        lineup.hold(places, [[update]] * 4)


def test_what_real_clients_drew_in_the_model_is_simulated() -> None:
    """The gradient of a bottleneck holds the numbers that were drawn, but nobody reads them off a real client's."""
    played, defense = replace(scenario(6), model=network()), parse_defense("precode:size=8")
    client = Client.of(played, defense)
    places = [place for number in range(6) for place in places_of(played, number)]
    updates = [[client.play(place, place.picture, Seed()).update] for place in places]
    received = replace(_received(played), model=client.model)
    lineup = LineUp(scenario=received, defense=defense, gallery=gallery_of(19), seed=Seed())
    found = lineup.hold(places, updates)
    assert {one.kind for one in found} == {"estimated"}
    assert sum(one.ranks[0] == 1 for one in found) >= 4, "chance names one in twenty"


def _received(played: Scenario) -> Scenario:
    return replace(played, received=Received(update={}, has_truth=True))


def test_pictures_of_one_pixel_in_width_have_near_copies() -> None:
    assert near_copies(torch.rand(3, 1, 5)).shape == (len(COPIES), 3, 1, 5)
    assert near_copies(torch.rand(4, 6, 6)).shape == (len(COPIES), 4, 6, 6)


def test_what_takes_long_is_done_for_all_candidates_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding fills up the number that is made at once: one by one each would take as long as all."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[int] = []
    plain = Loda.encoder

    def count(self: Loda, like: torch.Tensor) -> Callable[[torch.Tensor, list[str]], torch.Tensor]:
        encode = plain(self, like)
        return lambda pictures, hashes: made.append(len(set(hashes))) or encode(pictures, hashes)

    monkeypatch.setattr(Loda, "encoder", count)
    defense = Stack(
        (parse_defense("loda:extractor=lenet:untrained,layers=all,steps=3,public=digits"), Prune(ratio=0.5))
    )
    found = hold(defense, clients=2, gallery=gallery_of(13), model=network())
    assert set(trials_of(found)) == {1}
    pictures = 13 + 2 * (1 + len(COPIES))
    assert sum(made) == pictures, "each once"
    assert len(made) <= pictures / 4 + 3, "four at a time"
