"""Clients who hold public pictures, played as the server would see them, and what their updates look like.

Everything runs through the one `local_update`, the defense included, so whatever learns from it knows the defense.
Only features of the updates are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.func import vmap

from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch, Update
from gradveil.generators.sketch import Sketch

AtOnce = Literal["error", "different", "no"]  # how `vmap` takes the draws of a client; `no`: not at all
TOGETHER = 64  # clients at once; a constant, since the draws of a client may follow from those beside it
CLOSE = 1e-3  # of its length: two ways to compute one update agree
ROUNDED, FREE = 1 + 1e-6, 10  # pictures moved by rounding: signs of numbers next to zero may change, and may here
CANNOT = (RuntimeError, NotImplementedError, ValueError, TypeError)  # what is raised where vmap cannot trace a defense


class Simulated(NamedTuple):
    """What an inverter learns from: features of updates, labels, and the pictures behind them in the order to draw."""

    features: Tensor  # float16 [client, number]
    labels: Tensor  # [client, example, class]
    pictures: Tensor  # uint8 [client, example, channel, height, width]

    def to(self, device: torch.device | str) -> Simulated:
        return Simulated(*(x.to(device) for x in self))


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The model as sent, the clients' training, and their defense, bound to the scenario."""

    model: nn.Module
    training: LocalTraining
    defense: Defense
    sketch: Sketch
    examples: int
    shape: tuple[int, int, int]
    classes: int

    @cached_property
    def client(self) -> nn.Module:
        return in_client_mode(self.model, self.training)

    @cached_property
    def like(self) -> Tensor:
        return next(self.model.parameters()).detach()

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return parameters_of(self.model)

    def simulate(self, clients: Batch, seed: Seed) -> Simulated:
        """Clients with pictures in 8 bits [client, example, ...], all of them at once: see `TOGETHER`."""
        clients = in_drawing_order(clients)
        fed = Batch(clients.images.to(self.like) / 255, clients.labels.to(self.like))
        with torch.no_grad():
            features = self.sketch(self.updates(fed, seed)).nan_to_num(0, 0, 0)
        return Simulated(features.half(), fed.labels, clients.images)

    def updates(self, clients: Batch, seed: Seed) -> Update:
        """Each with its own draws, [client, ...]: all at once where that gives the same, else one by one."""
        if self.at_once != "no":
            return self._send_together(clients, seed, self.at_once)
        each = [self.send(Batch(*one), seed.at(place)) for place, one in enumerate(zip(*clients, strict=True))]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def send(self, batch: Batch, seed: Seed) -> Update:
        return self._send(batch, *streams(seed))

    def _send(self, batch: Batch, data_rng: Generator, rng: Generator) -> Update:
        """One client's round, as `gradveil.core.server` plays it."""
        data = self.defense.data(batch, data_rng)
        return local_update(self.client, self.parameters, data, self.training, self.defense, rng)

    def _send_together(self, clients: Batch, seed: Seed, randomness: AtOnce) -> Update:
        own, _ = (
            streams(seed, self.like.device),
            self.client,
        )  # the copy of the model is made outside: `vmap` refuses to trace it
        return dict(vmap(lambda one: self._send(one, *own), randomness=randomness)(clients))

    @cached_property
    def at_once(self) -> AtOnce:
        """Tried on two clients with the same picture."""
        kinds: tuple[AtOnce, ...] = ("error", "different")
        for kind in kinds:
            if self._agrees(kind):
                return kind
        return "no"

    def _agrees(self, randomness: AtOnce) -> bool:
        """Without draws both send what one sends alone, as far as rounding lets it; with draws each something else."""
        twice = Batch(*(x.expand(2, *x.shape) for x in self._probe()))
        try:
            found = self._send_together(twice, Seed(), randomness)
        except CANNOT:
            return False
        if randomness == "different":
            return any(not torch.equal(u[0], u[1]) for u in found.values())
        alone, rounded = (self.send(Batch(twice.images[0] * scale, twice.labels[0]), Seed()) for scale in (1, ROUNDED))
        limit = max(CLOSE**2 * difference(alone), FREE * difference(alone, rounded))
        return difference(alone, {name: u[0] for name, u in found.items()}) <= limit

    def _probe(self) -> Batch:
        rng = Seed().at("probe").rng()
        images = uniform((self.examples, *self.shape), rng, self.like)
        return Batch(images, uniform((self.examples, self.classes), rng, self.like).softmax(-1))


def difference(one: Update, other: Update | None = None) -> float:
    """Squared, of all numbers; without another the square of the update itself."""
    return sum(float((u - (0 if other is None else other[name])).double().square().sum()) for name, u in one.items())


def streams(seed: Seed, device: torch.device | str = "cpu") -> tuple[Generator, Generator]:
    """What a client draws its data and its round from; on a GPU by other numbers, and a hundred times faster."""
    own, client = (Generator(device).manual_seed(seed.at(what).number()) for what in ("data", "client"))
    return own, client


def in_drawing_order(clients: Batch) -> Batch:
    """Pictures of a client by label, of one label by brightness: an update does not say in which order they came."""
    brightness = clients.images.flatten(2).float().mean(2) / 256
    order = (clients.labels.argmax(-1) + brightness).argsort(dim=1)
    rows = torch.arange(len(order), device=order.device).unsqueeze(1)
    return Batch(clients.images[rows, order], clients.labels[rows, order])
