"""What the server sees: what the threat model grants, and never the truth."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scenes import (
    CLASSES,
    SCENES,
    Onlooker,
    batch_statistics,
    drawn,
    fedavg,
    four_pictures,
    one_hot,
    one_picture,
    scene,
    seen_in,
    settled,
    usual,
)
from torch import Generator, Tensor, nn
from toys import Plants

from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ThreatModelError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.prune import Prune

NOISY = Gaussian(scale=0.1)


def only(scenario: Scenario, clients: list[int]) -> Scenario:
    private = Batch(*(x[clients] for x in scenario.private))
    return replace(scenario, private=private, names=tuple(scenario.names[i] for i in clients))


def assert_equal(a: Observation, b: Observation) -> None:
    """Bit for bit in all that is sent."""
    assert a.names == b.names
    assert list(a.update) == list(b.update)
    assert all(torch.equal(a.update[name], b.update[name]) for name in a.update)
    assert (a.labels is None and b.labels is None) or torch.equal(a.labels, b.labels)  # type: ignore[arg-type]
    assert (a.statistics is None) == (b.statistics is None)
    assert all(torch.equal(x, b.statistics[key]) for key, x in (a.statistics or {}).items())  # type: ignore[index]


@pytest.mark.parametrize("name", SCENES)
def test_an_observation_is_every_clients_own_update(name: str) -> None:
    scenario = SCENES[name]()
    seen = seen_in(scenario)
    client = in_client_mode(scenario.model, scenario.training)
    for i in range(len(scenario.names)):
        own = Batch(scenario.private.images[i], scenario.private.labels[i])
        expected = local_update(client, parameters_of(client), own, scenario.training, Defense(), Seed().rng())
        assert all(torch.equal(seen.update[key][i], u) for key, u in expected.items())
    assert (seen.examples, seen.shape, seen.classes) == (scenario.private.images.shape[1], (3, 8, 8), CLASSES)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("clients", [[1], [2, 0]])
def test_take_is_observing_only_those_clients(name: str, clients: list[int]) -> None:
    scenario = SCENES[name]()
    assert_equal(seen_in(scenario, NOISY).take(clients), seen_in(only(scenario, clients), NOISY))


def test_a_client_may_be_taken_more_than_once() -> None:
    seen = seen_in(batch_statistics(shared=True), NOISY)
    twice = seen.take([1, 1])
    assert twice.names == ("client-1", "client-1")
    for name, u in seen.update.items():
        assert torch.equal(twice.update[name], u[[1, 1]])


def test_take_reaches_into_the_history() -> None:
    seen = seen_in(one_picture())
    past = replace(seen, history=(seen,)).take([2]).history[0]
    assert_equal(past, seen.take([2]))


@pytest.mark.parametrize("defense", [Defense(), NOISY, Prune(ratio=0.5)])
def test_an_update_does_not_depend_on_the_other_clients(defense: Defense) -> None:
    scenario = fedavg()
    others = scenario.private.images.clone()
    others[[0, 2]] = drawn(2, 4, 3, 8, 8, seed=77)
    changed = replace(scenario, private=Batch(others, scenario.private.labels))
    assert_equal(seen_in(scenario, defense).take([1]), seen_in(changed, defense).take([1]))


def test_noise_follows_the_name_and_the_seed() -> None:
    scenario = one_picture(2)
    twins = replace(scenario, private=Batch(*(x[[0, 0]] for x in scenario.private)))
    update = seen_in(twins, NOISY).update["fc.weight"]
    assert not torch.equal(update[0], update[1])
    assert torch.equal(seen_in(twins, NOISY).update["fc.weight"], update)
    assert not torch.equal(seen_in(twins, NOISY, seed=1).update["fc.weight"], update)


@pytest.mark.parametrize("knows_labels", [True, False])
@pytest.mark.parametrize("knows_defense", [True, False])
def test_labels_and_defense_only_if_granted(knows_labels: bool, knows_defense: bool) -> None:
    threat = ThreatModel(knows_labels=knows_labels, knows_defense=knows_defense)
    seen = seen_in(replace(four_pictures(), threat=threat), NOISY)
    assert (seen.labels is not None) == knows_labels
    assert (seen.defense is not None) == knows_defense


class Halves(Defense):
    """Changes pictures and labels before training."""

    def data(self, data: Batch, rng: Generator) -> Batch:
        return Batch(data.images / 2, data.labels.flip(-1))

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(batch.images / 2, batch.labels)


@pytest.mark.parametrize("scenario", [four_pictures(), fedavg()], ids=["fedsgd", "fedavg"])
def test_the_truth_keeps_the_private_and_the_fed_pictures(scenario: Scenario) -> None:
    seen, truth = observe(scenario, Halves(), Onlooker(), Seed(0))
    assert torch.equal(truth.private.images, scenario.private.images)
    assert torch.equal(truth.fed.images, scenario.private.images / 4)
    assert torch.equal(seen.labels, scenario.private.labels.flip(-1))  # type: ignore[arg-type]


def test_pictures_that_no_step_reached_are_as_they_would_have_been_fed() -> None:
    training = LocalTraining(steps=1, batch_size=1)
    _, truth = observe(replace(four_pictures(), training=training), Defense(), Onlooker(), Seed(0))
    assert torch.equal(truth.fed.images, truth.private.images)


def tensors_in(thing: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from a thing: fields, containers, modules, closures, bound methods."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type | str | bytes | int | float | torch.dtype):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    parts: list[Any] = []
    if isinstance(thing, dict):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts += list(thing)
    parts += list(getattr(thing, "__dict__", {}).values())
    parts += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    parts += [getattr(thing, name, None) for name in ("__self__", "__wrapped__")]
    parts += [thing.grad, thing.grad_fn] if isinstance(thing, Tensor) and thing.is_leaf else []
    for part in parts:
        yield from tensors_in(part, seen)


def holds(thing: Any, picture: Tensor) -> bool:
    """Whether a tensor in reach is the picture, contains it or lies in the same memory."""
    for tensor in tensors_in(thing):
        if tensor.untyped_storage().data_ptr() == picture.untyped_storage().data_ptr():
            return True
        if tensor.dim() >= 3 and tensor.shape[-3:] == picture.shape and (tensor == picture).flatten(-3).all(-1).any():
            return True
    return False


def test_the_search_finds_hidden_pictures() -> None:
    picture = drawn(3, 8, 8)
    model = nn.Linear(1, 1)
    model.register_forward_hook(lambda *_: picture.sum())
    assert holds(model, picture)
    assert holds({"a": [(picture.clone()[None],)]}, picture)
    assert holds(replace(seen_in(one_picture()), public=Batch(picture[None], picture)), picture)
    assert not holds(seen_in(one_picture()), picture)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("defense", [Defense(), NOISY, Prune(ratio=0.5)])
def test_no_private_picture_can_be_reached_from_an_observation(name: str, defense: Defense) -> None:
    scenario = replace(SCENES[name](), threat=ThreatModel(knows_defense=True))
    seen, truth = observe(scenario, defense, Onlooker(), Seed(0))
    for picture in scenario.private.images.flatten(0, 1):
        assert not holds(seen, picture)
        assert holds(truth, picture)


def test_updates_carry_no_graph() -> None:
    seen = seen_in(fedavg())
    assert not any(u.requires_grad for u in seen.update.values())


def test_planting_is_refused_unless_granted() -> None:
    with pytest.raises(ThreatModelError, match="may_plant"):
        observe(one_picture(), Defense(), Plants(), Seed(0))
    observe(replace(one_picture(), threat=ThreatModel(may_plant=True)), Defense(), Plants(), Seed(0))


class Doubles(Plants):
    """Plants a layer in front."""

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 3, 1).double(), model)


def test_a_planted_layer_is_in_what_was_sent_and_in_what_comes_back() -> None:
    scenario = replace(one_picture(), threat=ThreatModel(may_plant=True))
    seen, _ = observe(scenario, Defense(), Doubles(), Seed(0))
    assert isinstance(seen.model, nn.Sequential)
    assert {"0.weight", "0.bias"} <= set(seen.update)


def running_after(model: nn.Module, batch: Batch, training: LocalTraining) -> nn.Module:
    """The model after real steps in train mode."""
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), training.rate)
    for step in training.batches(batch):
        optimizer.zero_grad()
        F.cross_entropy(model(step.images), step.labels).backward()
        optimizer.step()
    return model


def assert_statistics_are_torchs(scenario: Scenario, prefix: str = "", defense: Defense | None = None) -> None:
    seen = seen_in(scenario, defense or Defense())
    assert seen.statistics is not None
    for i in range(len(scenario.names)):
        own = Batch(scenario.private.images[i], scenario.private.labels[i])
        trained = running_after(scenario.model, own, scenario.training)
        for name in ("norm1", "norm2"):
            layer: Any = trained.get_submodule(name)
            assert torch.allclose(seen.statistics[f"{prefix}{name}.mean"][i], layer.running_mean, rtol=0, atol=1e-14)
            assert torch.allclose(seen.statistics[f"{prefix}{name}.var"][i], layer.running_var, rtol=0, atol=1e-14)


@pytest.mark.parametrize("momentum", [0.1, 0.7])
@pytest.mark.parametrize("steps", [1, 3])
def test_shared_statistics_are_those_of_real_training(momentum: float, steps: int) -> None:
    scenario = batch_statistics(shared=True, steps=steps)
    for name in ("norm1", "norm2"):
        scenario.model.get_submodule(name).momentum = momentum  # type: ignore[assignment]
    training = replace(scenario.training, rate=0.2, batch_size=2)
    assert_statistics_are_torchs(replace(scenario, training=training))


@pytest.mark.parametrize("momentum", [0.0, None])
def test_shared_statistics_with_a_cumulative_average_or_none(momentum: float | None) -> None:
    """torch: momentum None averages over all batches so far, 0 leaves the statistics as they are."""
    scenario = batch_statistics(shared=True, steps=2)
    for name in ("norm1", "norm2"):
        scenario.model.get_submodule(name).momentum = momentum  # type: ignore[assignment]
    assert_statistics_are_torchs(replace(scenario, training=replace(scenario.training, rate=0.2)))


@pytest.mark.parametrize("name", ["one picture", "FedAvg", "batch statistics"])
def test_statistics_stay_with_the_client_otherwise(name: str) -> None:
    assert seen_in(SCENES[name]()).statistics is None


class Wraps(Defense):
    """An agreed change of the architecture: the model one level deeper."""

    def model(self, model: nn.Module) -> nn.Module:
        return nn.Sequential(model)


def test_shared_statistics_of_a_model_that_the_defense_has_changed() -> None:
    assert_statistics_are_torchs(batch_statistics(shared=True), prefix="0.", defense=Wraps())


def test_the_defense_agrees_on_the_model_before_it_is_sent() -> None:
    seen = seen_in(one_picture(), Wraps())
    assert all(name.startswith("0.") for name in seen.update)


def test_statistics_of_a_model_without_normalization_are_empty() -> None:
    model = settled(nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)))
    training = LocalTraining(batchnorm="batch-shared")
    assert seen_in(scene(model, 2, 2, training=training)).statistics == {}


def test_the_sent_model_is_the_scenarios_own_weights() -> None:
    model = usual()
    seen = seen_in(scene(model))
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in seen.model.state_dict().items())
    assert torch.equal(one_hot(3, 1), seen.labels)  # type: ignore[arg-type]
