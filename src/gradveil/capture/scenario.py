"""A scenario of what really came from clients, where others play the clients themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil import data
from gradveil.audit.plan import diagnostic
from gradveil.capture.format import Capture
from gradveil.capture.layout import buffer_of
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining, Received, Scenario, ThreatModel, stack_by_name
from gradveil.core.seeds import Seed, normal
from gradveil.core.target import Target
from gradveil.core.types import Batch, Labels
from gradveil.data.photos import photos
from gradveil.models import MODELS

SHORT = {"running_mean": "mean", "running_var": "var"}


def captured_scenario(
    capture: Capture,
    model: nn.Module,
    clients: Sequence[str],
    *,
    name: str,
    examples: int,
    knows_labels: bool,
    private: Batch | None = None,  # [client, example, ...]
    public: Batch | None = None,
) -> Scenario:
    """Clients of a capture with as many pictures each. Without `private` nobody knows what the pictures were."""
    labels = stack_labels(capture, clients)
    received = Received(
        update=stack_by_name([capture.updates[client] for client in clients]),
        statistics=_statistics(capture, clients),
        labels=labels if labels is not None or private is None else private.labels,
        has_truth=private is not None,
    )
    return Scenario(
        name=name,
        model=model,
        private=private or _nothing(capture, len(clients), examples),
        names=tuple(clients),
        training=as_one_client(capture, examples),
        threat=ThreatModel(knows_labels=knows_labels),
        public=public,
        trained=capture.round > 0,
        aggregate=capture.aggregate,
        received=received,
        target_kind=capture.answer.kind,
    )


def stack_labels(capture: Capture, clients: Sequence[str]) -> Labels | None:
    """Soft, [client, example, class, ...]; None unless the server knows those of all."""
    if not all(client in capture.labels for client in clients):
        return None
    return torch.stack([capture.answer.from_stored(capture.labels[client]) for client in clients])


def as_one_client(capture: Capture, examples: int) -> LocalTraining:
    """The training as an attacker imitates it: a group is one client that takes all minibatches of a step at once."""
    training = capture.training.for_examples(examples // capture.aggregate)
    size = training.batch_size
    return training if size is None else replace(training, batch_size=size * capture.aggregate)


def _statistics(capture: Capture, clients: Sequence[str]) -> dict[str, Tensor] | None:
    """By the names that attacks know: `bn1.mean`, `bn1.var`."""
    if capture.training.batchnorm != "batch-shared" or not all(client in capture.statistics for client in clients):
        return None
    found = stack_by_name([capture.statistics[client] for client in clients])
    named = {buffer_of(name).rpartition("."): tensor for name, tensor in found.items()}
    return {f"{layer}.{SHORT[kind]}": tensor for (layer, _, kind), tensor in named.items() if kind in SHORT}


def _nothing(capture: Capture, clients: int, examples: int) -> Batch:
    """Sizes without pictures. `Received.has_truth` keeps anybody from scoring against them."""
    return Batch(torch.zeros(clients, examples, *capture.shape), torch.zeros(clients, examples, *capture.answer.shape))


def with_replays(scenario: Scenario, replayed: Sequence[str]) -> Scenario:
    assert scenario.received is not None
    return replace(scenario, received=replace(scenario.received, replayed=tuple(replayed)))


CLIENTS = 4


def positive_control(capture: Capture, model: nn.Module) -> Scenario | None:
    """Undefended clients with one photograph each, played on the model as sent; None if photographs do not fit it."""
    channels, height, width = capture.shape
    if channels not in (1, 3):
        return None
    images = photos(count=CLIENTS, size=max(height, width)).images[:, :, :height, :width]
    images = images.mean(1, keepdim=True) if channels == 1 else images
    labels = known_targets(capture.answer)
    played = Scenario(
        name="photos",
        model=model,
        private=Batch(images[:, None], labels[:, None]),
        names=tuple(f"photo-{number}" for number in range(CLIENTS)),
        training=capture.training,
        trained=capture.round > 0,
        target_kind=capture.answer.kind,
    )
    return diagnostic(played, early=False)


def known_targets(target: Target) -> Tensor:
    """Of the photographs: every class in turn, or masks and numbers at random."""
    if target.has_classes:
        return F.one_hot(torch.arange(CLIENTS) % target.shape[0], target.shape[0]).float()
    return target.harden(normal((CLIENTS, *target.shape), Seed().at("targets").rng(), torch.zeros(())))


NO_DEFENSE, FEDSGD = Defense(), LocalTraining()


def simulate(
    *,
    model: str = "lenet",
    dataset: str = "photos",
    options: Mapping[str, Any] | None = None,
    clients: int = 1,
    examples: int = 1,
    training: LocalTraining = FEDSGD,
    defense: Defense = NO_DEFENSE,
    stated_defense: str = "",
    labels: bool = False,
    seed: int = 0,
) -> Capture:
    """The round of clients that hold the first pictures of the data. `stated_defense`: as a client would name it."""
    pictures = data.load(dataset, **{"limit": clients * examples, **(options or {})})
    shape, classes = pictures.shape, pictures.targets.shape[1]
    plain = MODELS[model](classes=classes, shape=shape, seed=seed, mean=pictures.mean, std=pictures.std)
    sent = defense.model(plain).eval()
    played, updates, own = in_client_mode(sent, training), {}, {}
    for number in range(clients):
        name, rows = f"client-{number}", slice(number * examples, (number + 1) * examples)
        batch = Batch(pictures.images[rows], pictures.targets[rows])
        rng = Seed(seed).at("round", 0, name).rng()
        updates[name] = local_update(played, parameters_of(played), defense.data(batch, rng), training, defense, rng)
        own[name] = batch.labels
    return Capture(
        weights=sent.state_dict(),
        updates=updates,
        round=0,
        training=training,
        examples=dict.fromkeys(updates, examples),
        shape=shape,
        classes=classes,
        normalization=(tuple(map(float, pictures.mean)), tuple(map(float, pictures.std))),
        model=model,
        defense=stated_defense,
        labels=own if labels else {},
        producer="gradveil.capture.simulate",
    )
