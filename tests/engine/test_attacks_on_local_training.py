"""Attacks through the local training: the same slopes in every back end, nothing that the client alone knows, and what
is identified."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import drawn, one_hot, perceptron, scene, seen_in, smooth
from torch import nn

from gradveil import data
from gradveil.attacks import ATTACKS
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.local_training import LocalTraining
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.backend import choose
from gradveil.engine.distance import Cosine
from gradveil.engine.labels import infer_labels
from gradveil.engine.matcher import Loop, OneTrial, Vmap
from gradveil.engine.soft_steps import soften_steps
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import LineUp
from gradveil.metrics import align
from gradveil.models import MODELS

TRAININGS = {
    "adam": LocalTraining(optimizer="adam", rate=1e-2, weight_decay=0.1, epsilon=1e-3),
    "adamw": LocalTraining(optimizer="adamw", rate=1e-2, weight_decay=0.1, epsilon=1e-3),
    "rmsprop": LocalTraining(optimizer="rmsprop", rate=1e-2, momentum=0.5, epsilon=1e-3),
    "adagrad": LocalTraining(optimizer="adagrad", rate=1e-2, epsilon=1e-3),
    "nesterov": LocalTraining(rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "clipped": LocalTraining(rate=0.1, clip_gradients=0.05, schedule="cosine", warmup=2),
    "weighted": LocalTraining(rate=0.1, label_smoothing=0.1, class_weights=(1.0, 0.5, 3.0, 2.0, 0.1)),
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", TRAININGS)
def test_all_back_ends_have_the_slopes_of_the_whole_graph(name: str, steps: int) -> None:
    training = replace(TRAININGS[name], steps=steps, batch_size=2 if steps > 1 else None)
    seen = seen_in(scene(smooth(), 2, 4, training=training))
    one, fed = OneTrial.of(seen, Cosine()), drawn(2, 4, *seen.shape, seed=3)
    assert seen.labels is not None
    value, slope = Loop(one)(fed)
    for at in range(2):
        update = {key: u[at] for key, u in seen.update.items()}
        slopes, expected = torch.func.grad_and_value(one)(fed[at], seen.labels[at], update)
        assert torch.allclose(value[at], expected, rtol=1e-10)
        assert torch.allclose(slope[at], slopes, rtol=1e-8, atol=1e-12)
    both = Vmap(one)(fed)
    assert torch.allclose(both[0], value, rtol=1e-10)
    assert torch.allclose(both[1], slope, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", TRAININGS)
def test_the_sweep_leaves_them_to_autograd(name: str) -> None:
    chosen = choose(seen_in(scene(smooth(), 2, 1, training=TRAININGS[name])), Cosine(), "auto")
    assert chosen.name == "vmap"
    assert chosen.notes[0].startswith("sweep cannot run this: the ")


@pytest.mark.parametrize("attack", ["linear", "cocktail-party", "spear"])
def test_closed_forms_take_no_step_of_adam_for_a_gradient(attack: str) -> None:
    plain, adam = (
        seen_in(scene(perceptron(), 2, 4, training=LocalTraining(optimizer=name))) for name in ("sgd", "adam")
    )
    ATTACKS[attack]().check(plain)
    with pytest.raises(NotApplicableError, match="an update of adam is no sum of them"):
        ATTACKS[attack]().check(adam)


def test_a_clipped_gradient_can_still_be_read() -> None:
    seen = seen_in(scene(perceptron(), 2, 1, training=LocalTraining(clip_gradients=0.1)))
    got = ATTACKS["linear"]().reconstruct(seen, Seed())
    assert (got.images - drawn(2, 1, *seen.shape, seed=9)).abs().max() < 1e-6


def test_labels_of_one_picture_are_read_off_the_signs_of_adam() -> None:
    seen = seen_in(scene(smooth(), 5, 1, training=LocalTraining(optimizer="adam")))
    assert seen.labels is not None
    assert torch.equal(infer_labels(seen).argmax(-1), seen.labels.argmax(-1))


def test_the_attacker_knows_nothing_that_the_client_draws() -> None:
    """Neither the order, which labels in the order of feeding would give away, nor the masks."""
    training = LocalTraining(epochs=1, batch_size=2, order="unknown", dropout="on", update_precision="bf16", rate=0.1)
    scenario = scene(smooth(), 2, 4, training=training)
    seen, truth = observe(scenario, Defense(), ATTACKS["invertgrad"](), Seed(1))
    assert seen.training == LocalTraining(steps=2, rate=0.1)
    assert torch.equal(truth.fed.images, truth.private.images)
    assert seen.labels is not None
    assert torch.equal(seen.labels, one_hot(2, 4))
    assert len(training.unknowns) == 3
    in_order = seen_in(replace(scenario, training=replace(training, order="known")))
    assert any(not torch.equal(seen.update[name], u) for name, u in in_order.update.items())


def test_a_search_takes_an_epsilon_that_has_slopes() -> None:
    seen = seen_in(scene(smooth(), 2, 4, training=LocalTraining(optimizer="adam")))
    softened, notes = soften_steps(seen)
    assert 1e-6 < softened.training.epsilon < 1
    assert notes[0].startswith("the client runs adam")
    assert soften_steps(seen_in(scene(smooth(), 2, 4)))[1] == ()


def client_of_adam(examples: int = 4, clients: int = 2) -> Scenario:
    """LeNet and photographs of 16 pixels, three steps of Adam."""
    photos = data.load("photos", size=16, count=clients * examples)
    batches = Batch(*(x.unflatten(0, (clients, examples)) for x in (photos.images, photos.targets)))
    model: nn.Module = MODELS["lenet"](
        classes=photos.targets.shape[1], shape=photos.shape, seed=0, mean=photos.mean, std=photos.std
    )
    training = LocalTraining(optimizer="adam", steps=3, rate=1e-3)
    names = tuple(f"client-{number}" for number in range(clients))
    return Scenario(name="adam", model=model, private=batches, names=names, training=training)


def count_named(scenario: Scenario, training: LocalTraining, steps: int) -> int:
    """Pictures whose reconstruction is nearer to them than to any other photograph."""
    attack = ATTACKS["lbfgs-cosine"](steps=steps)
    seen, _ = observe(scenario, Defense(), attack, Seed(0))
    got = attack.reconstruct(replace(seen, training=training), Seed(1))
    shown = align(got.images, scenario.private.images, got.found).images.flatten(0, 1).flatten(1)
    gallery = data.load("photos", size=16).images.flatten(1)
    return int((torch.cdist(shown, gallery).argmin(1) == torch.arange(len(shown))).sum())


@pytest.mark.more
def test_through_three_steps_of_adam_more_is_seen_than_by_who_takes_it_for_sgd() -> None:
    scenario = client_of_adam()
    through = count_named(scenario, scenario.training, steps=300)
    as_sgd = count_named(scenario, LocalTraining(steps=3, rate=1e-3), steps=300)
    assert through > as_sgd
    assert through >= 5  # of 8


@pytest.mark.more
def test_three_steps_of_adam_hide_no_picture_from_a_line_up() -> None:
    scenario = client_of_adam()
    photos = data.load("photos", size=16, count=60)
    gallery = Gallery(images=photos.images[8:], labels=photos.targets[8:])
    lineup = LineUp(scenario=scenario, defense=Defense(), gallery=gallery, seed=Seed(0), standins=2)
    client = Client.of(scenario, lineup.defense)
    places = [place for number in range(2) for place in places_of(scenario, number)]
    found = lineup.hold(places, [[client.play(place, place.picture, Seed(0)).update] for place in places])
    assert [one.ranks[0] for one in found] == [1] * 8
    assert {one.kind for one in found} == {"exact"}
