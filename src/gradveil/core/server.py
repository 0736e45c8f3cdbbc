"""The server of a round: the only maker of an `Observation`, by playing the clients or of what real ones sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gradveil.core.client import (
    BATCH_NORMS,
    Step,
    batch_statistics,
    in_client_mode,
    local_steps,
    newest_share,
    parameters_of,
)
from gradveil.core.errors import ThreatModelError
from gradveil.core.knowledge import NO_KNOWLEDGE, Knowledge, Mixture
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Images, Update

if TYPE_CHECKING:
    from gradveil.core.attack import Attack
    from gradveil.core.defense import Defense


def observe(scenario: Scenario, defense: Defense, attack: Attack, seed: Seed) -> tuple[Observation, Truth]:
    """Play the rounds: plant, let every client compute and defend its update, and keep what the server sees.

    The same model goes out in every round and meets the same data; only the random numbers are new. What is returned
    is the last round, with the others as its history.
    """
    threat = scenario.threat
    if "malicious" in attack.requires and not threat.may_plant:
        raise ThreatModelError(
            f"scenario {scenario.name}: the attack modifies the model, which this attacker may not do, "
            "use `attacker = malicious` (threat.may_plant)"
        )
    defense = defense.bind(scenario)
    sent = attack.plant(defense.model(scenario.model), _public_pictures(scenario), seed.at("plant"))
    return _play_rounds(sent, scenario, defense, seed)


def observe_agreed(scenario: Scenario, defense: Defense, seed: Seed) -> tuple[Observation, Truth]:
    """As `observe`, of a server that sends the model that all have agreed on and plants nothing."""
    defense = defense.bind(scenario)
    return _play_rounds(defense.model(scenario.model), scenario, defense, seed)


def _play_rounds(sent: nn.Module, scenario: Scenario, defense: Defense, seed: Seed) -> tuple[Observation, Truth]:
    model = in_client_mode(sent, scenario.training)
    before = range(scenario.threat.rounds - 1)
    earlier = [_round(sent, model, scenario, defense, seed.at("round", k))[0] for k in before]
    observation, truth = _round(sent, model, scenario, defense, seed)
    return replace(observation, history=tuple(earlier)), truth


def _round(
    sent: nn.Module, model: nn.Module, scenario: Scenario, defense: Defense, seed: Seed
) -> tuple[Observation, Truth]:
    """What the server sees of one round of all clients."""
    threat, training = scenario.threat, scenario.training
    attacked = training.as_attacked()
    rounds = [_group_round(sent, model, scenario, defense, seed, i) for i in range(len(scenario.names))]
    updates, fed, statistics = zip(*rounds, strict=True)
    pictures = [_without_copies(one, defense.copies if threat.knows_defense else 1) for one in fed]
    observation = Observation(
        model=sent,
        update={name: torch.stack([u[name] for u in updates]) for name in updates[0]},
        training=as_one_client(attacked if threat.knows_training else replace(attacked, steps=1, rate=1.0), scenario),
        training_known=threat.knows_training,
        examples=pictures[0].images.shape[0],
        shape=tuple(fed[0].images.shape[1:]),  # type: ignore[arg-type]
        classes=scenario.classes,
        target=scenario.target,
        names=scenario.names,
        labels=torch.stack([one.labels for one in pictures]) if threat.knows_labels else None,
        defense=defense if threat.knows_defense else None,
        public=scenario.public,
        statistics=_stack(statistics) if training.batchnorm == "batch-shared" else None,
        knowledge=_knowledge(scenario, defense, seed, _batch_of(pictures).images),
    )
    return observation, Truth(private=scenario.private, fed=_batch_of(fed))


def observe_received(scenario: Scenario, defense: Defense) -> tuple[Observation, Truth | None]:
    """What the server has seen of these clients. `defense` is what they say they ran: known to the adaptive attacker.

    What a client drew (mixtures, encodings) stays with the client, so an attacker has none of it here.
    """
    received, threat = scenario.received, scenario.threat
    assert received is not None
    seen = Observation(
        model=scenario.model,
        update=received.update,
        training=scenario.training.as_attacked(),
        examples=scenario.private.images.shape[1],
        shape=tuple(scenario.private.images.shape[2:]),  # type: ignore[arg-type]
        classes=scenario.classes,
        target=scenario.target,
        names=scenario.names,
        labels=received.labels if threat.knows_labels else None,
        defense=defense.bind(scenario) if threat.knows_defense else None,
        public=scenario.public,
        statistics=received.statistics,
        knowledge=defense.bind(scenario).knowledge() if threat.knows_defense else NO_KNOWLEDGE,
    )
    return seen, Truth(private=scenario.private, fed=scenario.private) if received.has_truth else None


def _public_pictures(scenario: Scenario) -> Batch:
    """What a server that plants knows of pictures: the public ones; an empty batch tells their size all the same."""
    return scenario.public or Batch(*(x.flatten(0, 1)[:0] for x in scenario.private))


def as_one_client(training: LocalTraining, scenario: Scenario) -> LocalTraining:
    """The training as the attacker imitates it: a group is one client that takes all minibatches of a step at once."""
    size = training.batch_size
    return training if size is None else replace(training, batch_size=size * scenario.aggregate)


def _group_round(
    sent: nn.Module, model: nn.Module, scenario: Scenario, defense: Defense, seed: Seed, group: int
) -> tuple[Update, Batch, dict[str, Tensor]]:
    """What the server gets of one client or, summed, of a group.

    The sum is kept as a mean, since the server knows how many there are: for one step of FedSGD it then is the update
    of a single client who holds all of the group's pictures.
    """
    count, name = scenario.aggregate, scenario.names[group]
    images, labels = (x.unflatten(0, (count, -1)) for x in _private(scenario, group))
    names = [name] if count == 1 else [f"{name}.{member}" for member in range(count)]
    members = zip(names, map(Batch, images, labels), strict=True)
    rounds = [_client_round(sent, model, scenario, defense, seed, *member) for member in members]
    if count == 1:
        return rounds[0]
    updates, fed, statistics = zip(*rounds, strict=True)
    whole = Batch(torch.cat([f.images for f in fed]), torch.cat([f.labels for f in fed]))
    return _mean(updates), whole, _mean(statistics)


def _mean(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {key: stack.mean(0) for key, stack in _stack(each).items()}


def _client_round(
    sent: nn.Module, model: nn.Module, scenario: Scenario, defense: Defense, seed: Seed, name: str, private: Batch
) -> tuple[Update, Batch, dict[str, Tensor]]:
    """What one client sends, what it was fed, and the running statistics after its round."""
    training = scenario.training
    data = defense.data(private, seed.at("data", name).rng())
    rng = seed.at("client", name).rng()
    steps = list(local_steps(model, parameters_of(model), data, training, defense, rng))
    update = defense.update(steps[-1].update, rng)
    statistics = _running_statistics(sent, model, steps) if training.batchnorm == "batch-shared" else {}
    return update, _first_epoch(data, steps, training), statistics


def _private(scenario: Scenario, client: int) -> Batch:
    return Batch(scenario.private.images[client], scenario.private.labels[client])


def _knowledge(scenario: Scenario, defense: Defense, seed: Seed, encodings: Images) -> Knowledge:
    """What the threat model grants: all that the defense tells and drew, or what it made of the pictures alone."""
    threat, alone = scenario.threat, scenario.aggregate == 1
    known = defense.knowledge() if threat.knows_defense else NO_KNOWLEDGE
    return replace(
        known,
        mixture=_mixture(scenario, defense, seed) if known.mixes and alone else None,
        encodings=encodings if threat.sees_encodings and defense.acts_at("data") else None,
    )


def _mixture(scenario: Scenario, defense: Defense, seed: Seed) -> Mixture:
    """What the clients' mixing draws, from the streams that they draw it from themselves."""
    streams = [seed.at("data", name).rng() for name in scenario.names]
    each = [defense.mixture(_private(scenario, client), rng) for client, rng in enumerate(streams)]
    return Mixture.of_clients([one for one in each if one is not None])


def _first_epoch(data: Batch, steps: Sequence[Step], training: LocalTraining) -> Batch:
    """The pictures as fed, each once; those that no step has reached as they would have been."""
    count = data.images.shape[0]
    size = min(training.batch_size or count, count)
    taken = steps[: -(-count // size)]
    epoch = [step.batch for step in taken]
    copies = max(1, epoch[0].images.shape[0] // size)  # of a defense that enlarges batches
    places = torch.cat([torch.arange(count)[step.rows] for step in taken])
    rest = [row for row in range(count) if row not in set(places.tolist())]
    epoch.append(Batch(*(x[rest].repeat_interleave(copies, 0) for x in data)))
    fed = Batch(torch.cat([b.images for b in epoch]), torch.cat([b.labels for b in epoch]))
    return fed if training.order == "known" else _put_back(fed, [*places.tolist(), *rest], copies)


def _put_back(fed: Batch, rows: Sequence[int], copies: int) -> Batch:
    """In the order of the client's pictures, which its shuffling hides from everybody."""
    at = torch.tensor(rows).argsort().to(fed.images.device)
    return Batch(*(x.unflatten(0, (-1, copies))[at].flatten(0, 1) for x in fed))


def _without_copies(fed: Batch, copies: int) -> Batch:
    """The first of every picture's copies."""
    return Batch(*(x[::copies] for x in fed))


def _running_statistics(sent: nn.Module, model: nn.Module, steps: Sequence[Step]) -> dict[str, Tensor]:
    """Running statistics after the round, moved as torch moves them, one step after the other."""
    layers = {n: m for n, m in sent.named_modules() if isinstance(m, BATCH_NORMS)}
    state: dict[str, Tensor] = {}
    for name, layer in layers.items():
        if layer.running_mean is not None and layer.running_var is not None:
            state |= {f"{name}.mean": layer.running_mean, f"{name}.var": layer.running_var}
    for k, step in enumerate(steps):
        with torch.no_grad():
            batch = batch_statistics(model, step.params, step.batch.images)
        for key in state:
            share = newest_share(layers[key.rpartition(".")[0]], k)
            state[key] = (1 - share) * state[key] + share * batch[key]
    return state


def _stack(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {key: torch.stack([one[key] for one in each]) for key in each[0]}


def _batch_of(fed: Sequence[Batch]) -> Batch:
    return Batch(torch.stack([f.images for f in fed]), torch.stack([f.labels for f in fed]))
