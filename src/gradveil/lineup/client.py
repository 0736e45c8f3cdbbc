"""A client's round as a function of one picture in it, with all that it draws last or without.

`play` is the client itself and returns what the server gets. `quiet_send` is what the guesser computes for a candidate
in the picture's place: the same local steps, up to the last draw of the defense. Everything else in the batch is known
to the guesser, as differential privacy assumes it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from gradveil.core.client import in_client_mode, local_steps, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.law import Round
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one picture is: its client, or the member of a group whose sum alone is seen, and its row there."""

    client: str
    example: int  # among the pictures of all members
    members: tuple[Batch, ...]

    @property
    def member(self) -> int:
        return self.example // len(self.members[0].images)

    @property
    def row(self) -> int:
        return self.example % len(self.members[0].images)

    @property
    def own(self) -> Batch:
        """The pictures of the client that it belongs to."""
        return self.members[self.member]

    @property
    def picture(self) -> Tensor:
        return self.own.images[self.row]

    @property
    def label(self) -> Tensor:
        return self.own.labels[self.row]

    @property
    def names(self) -> list[str]:
        """Of the members, as their random streams are named."""
        return [self.client] if len(self.members) == 1 else [f"{self.client}.{n}" for n in range(len(self.members))]

    def fill(self, picture: Tensor) -> tuple[Batch, ...]:
        """The members' pictures with another one in this place, under the same label."""
        own = put_in(self.own, self.row, Batch(picture, self.label))
        return tuple(own if number == self.member else batch for number, batch in enumerate(self.members))


def put_in(batch: Batch, row: int, one: Batch) -> Batch:
    """A copy with one picture and its label in this row, by concatenation: `torch.func` refuses to write."""
    pairs = zip(batch, one, strict=True)
    return Batch(*(torch.cat([x[:row], new.unsqueeze(0), x[row + 1 :]]) for x, new in pairs))


def places_of(scenario: Scenario, client: int) -> list[Place]:
    """Every picture of one client, or of one group."""
    images, labels = (x[client].unflatten(0, (scenario.aggregate, -1)) for x in scenario.private)
    members = tuple(map(Batch, images, labels))
    name, total = scenario.names[client], scenario.private.images.shape[1]
    return [Place(client=name, example=example, members=members) for example in range(total)]


class Played(NamedTuple):
    """What the server got of one round, and what every member fed to the model in each of its steps."""

    update: Update
    fed: tuple[tuple[Batch, ...], ...]  # by member and step


@dataclass(frozen=True, kw_only=True)
class Client:
    """The clients of a scenario under one defense."""

    model: nn.Module  # in client mode
    training: LocalTraining
    defense: Defense

    @classmethod
    def of(cls, scenario: Scenario, defense: Defense) -> Client:
        bound = defense.bind(scenario)
        sent = bound.model(scenario.model) if scenario.received is None else scenario.model
        model = in_client_mode(sent, scenario.training)
        return cls(model=model, training=scenario.training, defense=bound)

    @property
    def quiet(self) -> Client:
        return replace(self, defense=self.defense.quiet())

    @property
    def without_views(self) -> Client:
        return replace(self, defense=self.defense.without_views())

    def round_of(self, place: Place) -> Round:
        """What the size of the noise depends on."""
        count = len(place.own.images)
        examples = min(self.training.batch_size or count, count) * self.defense.copies
        return Round(training=self.training, examples=examples, members=len(place.members))

    def play(self, place: Place, picture: Tensor, seed: Seed) -> Played:
        """A round with the picture in its place, as `gradveil.core.server` plays it: the same streams."""
        members = zip(place.names, place.fill(picture), strict=True)
        each = [self._play_member(batch, seed, name) for name, batch in members]
        updates = [update for update, _ in each]
        mean = (
            updates[0] if len(updates) == 1 else {n: torch.stack([u[n] for u in updates]).mean(0) for n in updates[0]}
        )
        return Played(mean, tuple(fed for _, fed in each))

    def _play_member(self, batch: Batch, seed: Seed, name: str) -> tuple[Update, tuple[Batch, ...]]:
        return self.send(batch, seed.at("data", name).rng(), seed.at("client", name).rng())

    def send(self, batch: Batch, data_rng: Generator, rng: Generator) -> tuple[Update, tuple[Batch, ...]]:
        """One client's update, and what it was made of."""
        data = self.defense.data(batch, data_rng)
        update: Update = {}
        fed: list[Batch] = []
        for step in self.steps(data, rng):
            update = step.update
            fed.append(step.batch)
        return self.defense.update(update, rng), tuple(fed)

    def steps(self, data: Batch, rng: Generator) -> Iterator:
        return local_steps(self.model, parameters_of(self.model), data, self.training, self.defense, rng)

    def before_sending(self, batch: Batch, seed: Seed | None = None, name: str = "") -> Update:
        """One client's update before the last stage. Without a seed nothing may be drawn."""
        seed = seed or Seed()
        data = self.defense.data(batch, seed.at("data", name).rng())
        *_, last = self.steps(data, seed.at("client", name).rng())
        return last.update


def mean_of_updates(updates: Sequence[Update]) -> dict[str, Tensor]:
    return {name: torch.stack([u[name] for u in updates]).mean(0) for name in updates[0]}
