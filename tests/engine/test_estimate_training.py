"""Local steps and rate, worked out from the updates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, NO_DEFENSE, scene, seen_in, smooth
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.engine import estimate_training as rounds
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.estimate_training import LeastSquares, estimate_training
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import infer_labels
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.spaces.space import Pixels
from gradveil.metrics.psnr import peak_signal_to_noise

HERE, DOUBLE = Compute(), Compute(precision="float64")
TRIED = (1, 2, 5)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model needs no more."""
    for name, value in {"FIRST": 40, "MORE": 10, "ROUNDS": 3, "STEPS": TRIED}.items():
        monkeypatch.setattr(rounds, name, value)


def untold(steps: int, rate: float, first: int = 0, clients: int = 1, examples: int = 1) -> Scenario:
    """Clients of which the attacker knows neither steps nor rate; `first` chooses the photographs."""
    pictures = photos(size=8, limit=first + clients * examples).images[first:].double()
    training, threat = LocalTraining(steps=steps, rate=rate), ThreatModel(knows_training=False)
    scenario = scene(smooth(), clients, examples, training=training, threat=threat)
    return replace(scenario, private=Batch(pictures.unflatten(0, (clients, examples)), scenario.private.labels))


def test_an_observation_hides_what_the_threat_model_does_not_grant() -> None:
    scenario = untold(5, 0.1)
    scenario = replace(scenario, training=replace(scenario.training, momentum=0.5, loss="cross-entropy"))
    seen = seen_in(scenario)
    assert not seen.training_known
    assert (seen.training.steps, seen.training.rate, seen.training.momentum) == (1, 1.0, 0.5)
    report = seen_in(replace(scenario, threat=ThreatModel()))
    assert report.training_known
    assert report.training == scenario.training
    assert all(torch.equal(seen.update[name], report.update[name]) for name in report.update)


@pytest.mark.more
@pytest.mark.parametrize("steps", [1, 2])
def test_steps_and_rate_are_right_and_the_note_says_what_was_assumed(steps: int) -> None:
    training, notes = estimate_training(seen_in(untold(steps, 0.1)), HERE, TRIED)
    assert training.steps == steps
    assert training.rate == pytest.approx(0.1, rel=0.02)
    assert notes == (f"local steps and rate estimated: tau = {steps}, rate = 0.1",)


@pytest.mark.slow
@pytest.mark.parametrize("steps", TRIED)
def test_the_steps_are_right_in_most_rounds(steps: int) -> None:
    found = [estimate_training(seen_in(untold(steps, 0.1, first)), HERE, TRIED)[0] for first in (0, 10, 20)]
    assert sum(training.steps == steps for training in found) >= 2
    right = [training.rate for training in found if training.steps == steps]
    assert right == pytest.approx([0.1] * len(right), rel=0.02)


def test_what_cannot_be_told_apart_is_said() -> None:
    """At this rate the first step learns all there is to learn, and later ones send nothing."""
    training, (note,) = estimate_training(seen_in(untold(2, 2.0)), HERE, (1, 2, 3))
    assert training.steps == 1
    assert note.endswith("tau = 2, 3 would match alike")


def test_it_does_not_depend_on_the_order_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST": 10, "MORE": 3}.items():
        monkeypatch.setattr(rounds, name, value)
    seen = seen_in(untold(2, 0.1, clients=2))
    assert estimate_training(seen, HERE, (1, 2))[0] == estimate_training(seen.take([1, 0]), HERE, (1, 2))[0]


def test_the_factor_is_that_of_least_squares() -> None:
    dummy = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([2.0])}
    seen = {"a": torch.tensor([3.0, 6.0]), "b": torch.tensor([0.0])}
    factor = LeastSquares()(dummy, seen).item()
    assert factor == pytest.approx(15 / 9)
    apart = [
        L2()({name: f * d for name, d in dummy.items()}, seen).item() for f in (factor - 0.1, factor, factor + 0.1)
    ]
    assert min(apart) == apart[1]


def searching(steps: int = 120) -> Inversion:
    return Inversion(distance=Cosine(), space=Pixels(), optimizer=Lbfgs(), steps=steps)


def quality(seen: Observation, pictures: Tensor) -> float:
    got = searching().reconstruct(seen, Seed(0), DOUBLE)
    return peak_signal_to_noise(got.images, pictures).mean().item()


@pytest.mark.slow
def test_estimating_beats_a_wrong_guess_and_comes_near_to_knowing() -> None:
    scenario = untold(5, 0.1, clients=2)
    seen, pictures = seen_in(scenario), scenario.private.images
    wrong = replace(seen, training=LocalTraining(steps=1, rate=0.5), training_known=True)
    report = replace(seen, training=scenario.training, training_known=True)
    guessed = quality(seen, pictures)
    assert guessed > quality(wrong, pictures) + 5
    assert guessed > quality(report, pictures) - 3


def test_a_reconstruction_says_that_the_training_was_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "STEPS", (1, 2))
    got = searching(3).reconstruct(seen_in(untold(2, 0.1)), Seed(0), DOUBLE)
    assert "local steps and rate estimated: tau = 2, rate = 0.1" in got.notes


def test_who_does_not_look_at_the_update_estimates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.engine.inversion.estimate_training", lambda *_: pytest.fail("estimated"))
    got = searching(3).prior_only().reconstruct(seen_in(untold(2, 0.1)), Seed(0), DOUBLE)
    assert not got.notes
    searching(3).reconstruct(seen_in(replace(untold(2, 0.1), threat=ThreatModel())), Seed(0), DOUBLE)


def test_labels_are_read_without_the_rate() -> None:
    scenario = untold(2, 1e-3, examples=3)
    hidden = ThreatModel(knows_labels=False, knows_training=False)
    labels = torch.eye(CLASSES).double()[torch.tensor([[0, 2, 4]])]
    scenario = replace(scenario, private=Batch(scenario.private.images, labels), threat=hidden)
    assert torch.equal(infer_labels(seen_in(scenario, NO_DEFENSE)), labels)
