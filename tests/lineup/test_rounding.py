"""Where a model is sure of a picture, its gradient is rounding; where training diverges, it is no number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from rooms import gallery_of, hold, trials_of
from torch import nn
from toys import CLASSES, scenario

from gradveil.core.defense import Defense
from gradveil.core.law import SAME, Same
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.prune import Prune
from gradveil.defenses.qsgd import Qsgd
from gradveil.lineup import hold as holding
from gradveil.lineup import replay
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import LineUp
from gradveil.lineup.make import Setting
from gradveil.lineup.replay import pick_doubtful
from gradveil.lineup.score import Guesser, Question
from gradveil.models.start import weights_from


def sure_network() -> nn.Module:
    with weights_from(4):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, CLASSES)
        )
    with torch.no_grad():
        for parameter in model[-1].parameters():
            parameter *= 120
    return model


def predicted(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return torch.eye(CLASSES)[model(images.flatten(0, -4)).argmax(-1)].view(*images.shape[:-3], CLASSES)


def sure_line_up(defense: Defense, clients: int = 6) -> tuple[LineUp, list, list]:
    """Victims and candidates with the class that the model is sure of."""
    model, plain = sure_network(), scenario(clients)
    gallery = gallery_of(60).images
    private = Batch(plain.private.images, predicted(model, plain.private.images).detach())
    played: Scenario = replace(plain, model=model, private=private)
    labels = predicted(model, gallery).detach()
    lineup = LineUp(scenario=played, defense=defense, gallery=Gallery(images=gallery, labels=labels), seed=Seed())
    client = Client.of(played, defense)
    places = [place for number in range(clients) for place in places_of(played, number)]
    return lineup, places, [[client.play(place, place.picture, Seed()).update] for place in places]


@pytest.mark.parametrize("defense", [Defense(), Prune(ratio=0.5), Qsgd(bits=6)])
def test_gradients_that_are_rounding_still_name_their_pictures(
    defense: Defense, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineup, places, updates = sure_line_up(defense)
    lengths = [sum(float(u.square().sum()) for u in one[0].values()) ** 0.5 for one in updates]
    assert min(lengths) < 1e-3, "the model is to be sure of at least one"
    assert {one.ranks[0] for one, length in zip(lineup.hold(places, updates), lengths, strict=True) if length} == {1}
    monkeypatch.setattr(holding, "settle_ties", lambda guesser, question, scores, gallery: scores)
    without = lineup.hold(places, updates)
    assert all(one.kind == "exact" and isinstance(one.fits, bool) for one in without)


@pytest.mark.parametrize("defense", [Defense(), Prune(ratio=0.9)])
def test_more_are_played_again_until_one_is_the_update(defense: Defense, monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest need not be among the first: of a short gradient many at once compute other bits."""
    lineup, places, updates = sure_line_up(defense)
    sent = [sum(float(u.square().sum()) for u in one[0].values()) > 0 for one in updates]

    def score_badly(guesser: Guesser, questions: Sequence[Question], gallery: Gallery) -> list[torch.Tensor]:
        """The own picture and its copies last."""
        sizes = [(len(next(iter(one.columns.values()))), len(gallery.images) + len(one.own)) for one in questions]
        return [-1e6 - torch.arange(count, dtype=torch.float64).expand(columns, -1) for columns, count in sizes]

    monkeypatch.setattr(Guesser, "score", score_badly)
    found = [one.ranks[0] for one, is_sent in zip(lineup.hold(places, updates), sent, strict=True) if is_sent]
    assert set(found) == {1}


def test_an_update_that_is_no_number_names_nobody() -> None:
    """A rank of 1 by NaN would read as a picture that is named."""
    found = hold(clients=30, training=LocalTraining(steps=8, rate=1e38), gallery=gallery_of(40))
    assert sum(rank == 1 for rank in trials_of(found)) <= 5, "chance is 1 in 41"
    assert not any(one.fits for one in found)


def test_scores_of_rounding_are_within_reach_of_a_replay() -> None:
    sent = {"w": torch.randn(1, 100)}
    made = {"w": torch.cat([sent["w"] * (1 + 1e-6), torch.randn(5, 100)])}
    scores, reach = Same().score(sent, made)[0], Same.reach
    assert reach is not None
    assert pick_doubtful(scores, reach) == [], "one is near, no other is"
    assert set(pick_doubtful(scores[1:], reach)) == {0, 1, 2, 3, 4}, "none is near: all are played again"
    twice = Same().score(sent, {"w": torch.cat([made["w"], sent["w"] * 1.01])})[0]
    assert {0, 6} <= set(pick_doubtful(twice, reach)), "two are near"


def plays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Columns of the candidates that are played again from now on."""
    seen: list[int] = []
    replay_one = replay._replay

    def count(guesser: Guesser, question: Question, setting: Setting, column: int, candidate: Batch) -> torch.Tensor:
        seen.append(column)
        return replay_one(guesser, question, setting, column, candidate)

    monkeypatch.setattr(replay, "_replay", count)
    return seen


def test_what_is_further_off_than_rounding_moves_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that are 5 % off are within reach, but the first one played is the update, to the last bit."""
    lineup, places, updates = sure_line_up(Defense())
    seen = plays(monkeypatch)
    close = -((0.05 / SAME) ** 2) / 2

    def score(guesser: Guesser, questions: Sequence[Question], gallery: Gallery) -> list[torch.Tensor]:
        """The own picture is off by rounding, all others by 5 %."""
        found = []
        for one in questions:
            size = len(gallery.images) + len(one.own)
            scores = torch.full((len(next(iter(one.columns.values()))), size), close, dtype=torch.float64)
            scores[:, len(gallery.images)] = -1e-4
            found.append(scores)
        return found

    monkeypatch.setattr(Guesser, "score", score)
    assert {one.ranks[0] for one in lineup.hold(places[:1], updates[:1])} == {1}
    assert seen == [0], "the own picture in the first column, and nothing else"


def test_the_update_of_another_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its picture is none of the candidates, so no replay can find it."""
    lineup, places, updates = sure_line_up(Defense())
    seen = plays(monkeypatch)
    lineup.hold(places, updates)
    assert set(seen) == {0}, "one update of each place, and no stand-ins: column 1 is another's"
