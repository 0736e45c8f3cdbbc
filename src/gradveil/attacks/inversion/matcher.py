"""The match: how far the dummy's update is from the one received, and which way to move the pictures.

Three back ends with one meaning. `loop` takes one trial at a time and is the reference; `vmap` takes all at once on
any model that `torch.func` can trace; `sweep` writes the two derivatives out for models of the usual layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from gradveil.attacks.inversion.distance import Distance
from gradveil.client import in_client_mode, local_update
from gradveil.defenses.base import Defense
from gradveil.seeds import Seed
from gradveil.server import Observation
from gradveil.types import Batch, Images, Labels, Update


class Matcher(Protocol):
    """Value [trial] and gradient (shaped as the pictures) of the match."""

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]: ...


class JointMatcher(Matcher, Protocol):
    """A match whose labels are searched for too: its third result is the gradient by them."""

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]: ...


@dataclass(frozen=True)
class OneTrial:
    """The attacker's copy of the client, for one trial: run `local_update` on dummy pictures and compare."""

    model: nn.Module
    seen: Observation
    distance: Distance

    @classmethod
    def of(cls, seen: Observation, distance: Distance) -> OneTrial:
        return cls(in_client_mode(seen.model, seen.training).requires_grad_(False), seen, distance)

    def __call__(self, images: Tensor, labels: Tensor, update: Update) -> Tensor:
        defense = Defense() if self.seen.defense is None else self.seen.defense.surrogate(update)
        rng = Seed().rng()  # surrogates draw nothing
        data = defense.data(Batch(images, labels), rng)
        params = {name: p for name, p in self.model.named_parameters() if name in update}  # the rest is frozen
        dummy = local_update(self.model, params, data, self.seen.training, defense, rng)
        return self.distance(dummy, {name: u for name, u in update.items() if name in dummy})


@dataclass(frozen=True)
class NoMatch:
    """No match at all: for the attacker who has only its priors."""

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        return fed.new_zeros(fed.shape[0]), torch.zeros_like(fed)

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
        return *self(fed), torch.zeros_like(labels)


@dataclass(frozen=True)
class Loop:
    one: OneTrial

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        seen, values, gradients = self.one.seen, [], []
        assert seen.labels is not None
        for i in range(fed.shape[0]):
            with torch.enable_grad():
                images = fed[i].detach().requires_grad_()
                value = self.one(images, seen.labels[i], {name: u[i] for name, u in seen.update.items()})
            (gradient,) = torch.autograd.grad(value, images)
            values.append(value.detach())
            gradients.append(gradient)
        return torch.stack(values), torch.stack(gradients)

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
        each = []
        for i in range(fed.shape[0]):
            with torch.enable_grad():
                free = fed[i].detach().requires_grad_(), labels[i].detach().requires_grad_()
                value = self.one(*free, {name: u[i] for name, u in self.one.seen.update.items()})
            each.append((value.detach(), *torch.autograd.grad(value, free)))
        values, by_pictures, by_labels = zip(*each, strict=True)
        return torch.stack(values), torch.stack(by_pictures), torch.stack(by_labels)


@dataclass(frozen=True)
class Vmap:
    one: OneTrial

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        seen = self.one.seen
        assert seen.labels is not None
        step = torch.func.vmap(torch.func.grad_and_value(self.one), randomness="different")
        gradient, value = step(fed, seen.labels, dict(seen.update))
        return value.detach(), gradient.detach()

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
        step = torch.func.vmap(torch.func.grad_and_value(self.one, argnums=(0, 1)), randomness="different")
        (by_pictures, by_labels), value = step(fed, labels, dict(self.one.seen.update))
        return value.detach(), by_pictures.detach(), by_labels.detach()
