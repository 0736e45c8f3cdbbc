"""FedSGD or FedAvg: local steps and rate worked out from the updates alone, to hold against what the capture says."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from gradveil.capture.format import Capture
from gradveil.capture.scenario import captured_scenario
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.server import observe_received
from gradveil.engine.estimate_training import estimate_training


def describe_training(capture: Capture, model: nn.Module, compute: Compute = Compute()) -> str:
    """In words. Clients with the fewest pictures tell most; a defense misleads it."""
    least = min(count or 1 for count in capture.examples.values())
    clients = [client for client, count in capture.examples.items() if (count or 1) == least]
    are_known = all(client in capture.labels for client in clients)
    count = least * capture.aggregate
    scenario = captured_scenario(capture, model, clients, name="estimate", examples=count, knows_labels=are_known)
    seen, _ = observe_received(scenario, Defense())
    unknown = replace(capture.training, steps=1, rate=1.0)
    _, (note,) = estimate_training(replace(seen, training=unknown, training_known=False), compute)
    training = capture.training
    return f"{note}; the capture says tau = {training.steps}, rate = {training.rate:.2g}"
