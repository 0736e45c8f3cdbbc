"""A client's round, played again: by the same draws to see whether it is what was received, or by new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from gradveil.audit.own_client import squared_length
from gradveil.core.client import in_client_mode, local_steps, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update

SAME = 1e-3  # two updates are the same if they differ by less than this share of their length


class Played(NamedTuple):
    """What a client sent, and what it fed to the model in each step."""

    update: Update
    fed: tuple[Batch, ...]


@dataclass(frozen=True)
class Clients:
    """The clients of a round. Written apart from `observe`, whose faults they have to show."""

    scenario: Scenario
    defense: Defense
    model: nn.Module  # in client mode
    seed: Seed

    @classmethod
    def of(cls, scenario: Scenario, defense: Defense, sent: nn.Module, seed: Seed) -> Clients:
        return cls(scenario, defense.bind(scenario), in_client_mode(sent, scenario.training), seed)

    def play(self, client: int, *time: str) -> Played:
        """The round of one client or, summed, of a group; at a `time` of its own by new draws."""
        name, count = self.scenario.names[client], self.scenario.aggregate
        images, labels = (x[client].unflatten(0, (count, -1)) for x in self.scenario.private)
        names = [name] if count == 1 else [f"{name}.{member}" for member in range(count)]
        members = zip(names, map(Batch, images, labels), strict=True)
        each = [self._play_member(self.seed.at(*time), *member) for member in members]
        if count == 1:
            return each[0]
        updates = [one.update for one in each]
        mean = {key: torch.stack([update[key] for update in updates]).mean(0) for key in updates[0]}
        return Played(mean, tuple(_join(step) for step in zip(*(one.fed for one in each), strict=True)))

    def _play_member(self, seed: Seed, name: str, private: Batch) -> Played:
        data, rng = self.defense.data(private, seed.at("data", name).rng()), seed.at("client", name).rng()
        params, training = parameters_of(self.model), self.scenario.training
        steps = list(local_steps(self.model, params, data, training, self.defense, rng))
        return Played(self.defense.update(steps[-1].update, rng), tuple(step.batch for step in steps))


def _join(batches: tuple[Batch, ...]) -> Batch:
    return Batch(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))


def is_another(update: Update, other: Update) -> bool:
    """Beyond rounding."""
    off, size = squared_length(update, other), max(squared_length(update), squared_length(other))
    return not off <= SAME**2 * size
