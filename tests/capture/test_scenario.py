"""What a captured round looks like to an attacker: as the simulated one does that it was made of."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch
from pictures import rows, sent_by

from gradveil.audit.plan import clients_of, diagnostic
from gradveil.audit.update_match import match_updates
from gradveil.capture.preflight import model_of
from gradveil.capture.scenario import captured_scenario, simulate
from gradveil.core.attack import Reconstruction
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe, observe_received
from gradveil.core.types import Batch
from gradveil.defenses import DEFENSES

PRIVATE = Batch(torch.stack([rows(k).images for k in range(3)]), torch.stack([rows(k).labels for k in range(3)]))
CAPTURE = sent_by(rows(0), rows(1), rows(2))
NAMES = ("client-0", "client-1", "client-2")


def scene(private: Batch | None = PRIVATE, knows_labels: bool = True) -> Scenario:
    return captured_scenario(
        CAPTURE, model_of(CAPTURE), NAMES, name="x", examples=1, knows_labels=knows_labels, private=private
    )


class Onlooker:
    plants = False
    requires = frozenset()

    def plant(self, model, public, seed):
        return model


def test_a_capture_is_seen_as_its_simulation_is() -> None:
    mine = scene()
    seen, truth = observe_received(mine, Defense())
    played, same = observe(replace(mine, received=None), Defense(), Onlooker(), Seed())  # type: ignore[arg-type]
    assert truth is not None
    assert torch.equal(truth.private.images, same.private.images)
    for name, update in played.update.items():
        torch.testing.assert_close(seen.update[name], update)
    for field in ("training", "examples", "shape", "classes", "names", "defense", "training_known"):
        assert getattr(seen, field) == getattr(played, field)
    assert seen.labels is not None
    assert played.labels is not None
    assert torch.equal(seen.labels, played.labels)


def test_without_pictures_there_is_no_truth_and_no_label() -> None:
    seen, truth = observe_received(scene(None, knows_labels=False), Defense())
    assert truth is None
    assert seen.labels is None
    assert not scene(None).has_truth
    assert not scene(None).private.images.any()


def test_only_who_knows_the_defense_gets_it() -> None:
    defense = DEFENSES["prune"](ratio=0.5)
    assert observe_received(scene(), defense)[0].defense is None
    knowing = replace(scene(), threat=replace(scene().threat, knows_defense=True))
    assert observe_received(knowing, defense)[0].defense == defense


def test_some_clients_are_those_clients() -> None:
    some = clients_of(scene(), [2, 0])
    seen, _ = observe_received(some, Defense())
    assert seen.names == ("client-2", "client-0")
    assert torch.equal(seen.update["fc.bias"][0], CAPTURE.updates["client-2"]["fc.bias"])
    (first,) = observe_received(clients_of(scene(), slice(1, 2)), Defense())[0].update["fc.bias"]
    assert torch.equal(first, CAPTURE.updates["client-1"]["fc.bias"])


def test_shards_share_the_memory_of_the_round_and_travel_alone() -> None:
    whole, part = scene().received, clients_of(scene(), slice(1, 2)).received
    assert whole is not None
    assert part is not None
    shard = whole.take(slice(1, 2))
    for name, u in whole.update.items():
        assert shard.update[name].untyped_storage().data_ptr() == u.untyped_storage().data_ptr()
        assert torch.equal(shard.update[name], part.update[name])
    sent = pickle.loads(pickle.dumps(shard))
    assert all(torch.equal(sent.update[name], u) for name, u in shard.update.items())
    assert all(u.untyped_storage().nbytes() == u.nbytes for u in sent.update.values())


def test_a_capture_is_never_its_own_positive_control() -> None:
    assert scene().regime == "deployment"
    assert diagnostic(scene()).received is None
    assert diagnostic(scene()).regime == "diagnostic"


def test_statistics_come_under_the_names_that_attacks_know() -> None:
    capture = sent_by(rows(0, 2), model="convnet8", training=LocalTraining(batchnorm="batch-shared"))
    name = next(name for name in capture.weights if name.endswith("running_var"))
    capture = replace(capture, statistics={"client-0": {name: capture.weights[name] + 1}})
    one = captured_scenario(capture, model_of(capture), ["client-0"], name="x", examples=2, knows_labels=False)
    statistics = observe_received(one, Defense())[0].statistics
    assert statistics is not None
    assert torch.equal(statistics[name.replace("running_var", "var")][0], capture.weights[name] + 1)


def test_match_is_one_for_the_picture_itself() -> None:
    seen, _ = observe_received(scene(), Defense())
    labels, found, loss = PRIVATE.labels, torch.ones(3, 1, dtype=torch.bool), torch.zeros(3)
    exact = match_updates(seen, Reconstruction(images=PRIVATE.images, labels=labels, found=found, loss=loss))
    gray = torch.full_like(PRIVATE.images, 0.5)
    wrong = match_updates(seen, Reconstruction(images=gray, labels=labels, found=found, loss=loss))
    torch.testing.assert_close(exact, torch.ones(3), rtol=0, atol=1e-5)
    assert (wrong < 0.99).all()


@pytest.mark.parametrize("expected", ["", "precode:size=8", "precode:size=1000000000000", "precode:foo=1"])
def test_the_model_has_the_bottleneck_that_was_sent_whatever_is_said_of_it(expected: str) -> None:
    capture = simulate(defense=DEFENSES["precode"](size=8), stated_defense=expected)
    model = model_of(capture)
    assert all(torch.equal(value, capture.weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("odd", [torch.zeros(8), torch.zeros(0, 8), torch.zeros(3, 8)])
def test_a_bottleneck_that_fits_nothing_is_told_in_a_line(odd: torch.Tensor) -> None:
    sent = simulate(defense=DEFENSES["precode"](size=8))
    broken = replace(sent, weights={**sent.weights, "fc.bottleneck.decoder.weight": odd})
    with pytest.raises(ConfigError, match=r"weights/fc\.bottleneck"):
        model_of(broken)
