"""A scenario of what really came from clients, where others play the clients themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.capture.format import Capture
from gradveil.capture.layout import buffer_of
from gradveil.core.received_updates import Received, stack_by_name
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.types import Batch, Labels

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
        training=as_one_client(capture),
        threat=ThreatModel(knows_labels=knows_labels),
        public=public,
        trained=capture.round > 0,
        aggregate=capture.aggregate,
        received=received,
    )


def stack_labels(capture: Capture, clients: Sequence[str]) -> Labels | None:
    """Soft, [client, example, class]; None unless the server knows those of all."""
    if not all(client in capture.labels for client in clients):
        return None
    return torch.stack([soften(capture.labels[client], capture.classes) for client in clients])


def soften(labels: Tensor, classes: int) -> Labels:
    if labels.is_floating_point():
        return labels.float()
    return F.one_hot(labels.long(), classes).float()


def as_one_client(capture: Capture) -> LocalTraining:
    """The training as an attacker imitates it: a group is one client that takes all minibatches of a step at once."""
    size = capture.training.batch_size
    return capture.training if size is None else replace(capture.training, batch_size=size * capture.aggregate)


def _statistics(capture: Capture, clients: Sequence[str]) -> dict[str, Tensor] | None:
    """By the names that attacks know: `bn1.mean`, `bn1.var`."""
    if capture.training.batchnorm != "batch-shared" or not all(client in capture.statistics for client in clients):
        return None
    found = stack_by_name([capture.statistics[client] for client in clients])
    named = {buffer_of(name).rpartition("."): tensor for name, tensor in found.items()}
    return {f"{layer}.{SHORT[kind]}": tensor for (layer, _, kind), tensor in named.items() if kind in SHORT}


def _nothing(capture: Capture, clients: int, examples: int) -> Batch:
    """Sizes without pictures. `Received.has_truth` keeps anybody from scoring against them."""
    return Batch(torch.zeros(clients, examples, *capture.shape), torch.zeros(clients, examples, capture.classes))


def with_replays(scenario: Scenario, replayed: Sequence[str]) -> Scenario:
    assert scenario.received is not None
    return replace(scenario, received=replace(scenario.received, replayed=tuple(replayed)))
