"""How much a client sends: the bytes of a real update under each defense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.wire import encoded_size


def update_bytes(scenario: Scenario, defenses: Mapping[str, Defense], attack: Attack, seed: Seed) -> dict[str, int]:
    """By defense, what the scenario's first client sends, in float32, to the server of this attack."""
    return dict(_sizes(_one_client(scenario), defenses, attack, seed))


def _sizes(
    scenario: Scenario, defenses: Mapping[str, Defense], attack: Attack, seed: Seed
) -> Iterator[tuple[str, int]]:
    for label, defense in defenses.items():
        try:
            sent = _update(scenario, defense, attack, seed.at("observe", scenario.name, label))
            yield label, encoded_size(sent, bucket=defense.scale_group)
        except Exception:  # what fails here fails in every trial too, and there it is reported
            continue


def _update(scenario: Scenario, defense: Defense, attack: Attack, seed: Seed) -> Update:
    received = scenario.received
    sent = observe(scenario, defense, attack, seed)[0].update if received is None else received.update
    return {name: u[0].float() for name, u in sent.items()}


def _one_client(scenario: Scenario) -> Scenario:
    """One round of one client, however many the server adds up."""
    share = scenario.private.images.shape[1] // scenario.aggregate
    images, labels = (x[:1, :share] for x in scenario.private)
    names = scenario.names[:1] if scenario.aggregate == 1 else (f"{scenario.names[0]}.0",)
    threat = replace(scenario.threat, rounds=1)
    return replace(scenario, private=Batch(images, labels), names=names, threat=threat, aggregate=1)
