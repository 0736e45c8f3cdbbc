"""The match: how far the dummy's update is from the one received, and which way to move the pictures.

Three back ends with one meaning. `loop` takes one trial at a time and is the reference; `vmap` takes all at once on
any model that `torch.func` can trace; `sweep` writes the two derivatives out for models of the usual layers.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from gradveil.core.client import in_client_mode, local_update
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Images, Labels, Update
from gradveil.engine.adjoint import LocalRound
from gradveil.engine.distance import Distance
from gradveil.engine.linear_updates import OuterRound, outer_layers
from gradveil.engine.trilinear import Trilinear


class Matcher(Protocol):
    """Value [trial] and gradient (shaped as the pictures) of the match."""

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]: ...


class JointMatcher(Matcher, Protocol):
    """A match whose labels are searched for too: its third result is the gradient by them."""

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]: ...


@dataclass(frozen=True)
class OneTrial:
    """The attacker's copy of the client, for one trial: run `local_update` on dummy pictures and compare.

    `step_by_step` differentiates one local step at a time: the same slopes in the memory of one step, see `adjoint`.
    `outer` names linear layers that such a round knows by outer products, see the module `outer`.
    """

    model: nn.Module
    seen: Observation
    distance: Distance
    step_by_step: bool = False
    outer: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: Observation, distance: Distance) -> OneTrial:
        model = in_client_mode(seen.model, seen.training).requires_grad_(False)
        return cls(model, seen, distance, step_by_step=seen.training.steps > 1)

    def __call__(self, images: Tensor, labels: Tensor, update: Update) -> Tensor:
        defense, rng = self.surrogate(update), Seed().rng()  # surrogates draw nothing
        data = defense.data(Batch(images, labels), rng)
        dummy = local_update(self.model, self.params(update), data, self.seen.training, defense, rng)
        return self.distance(dummy, {name: u for name, u in update.items() if name in dummy})

    def value_and_slopes(self, joint: bool, images: Tensor, labels: Tensor, update: Update) -> tuple[Tensor, ...]:
        """The match and its gradient by the pictures and, if `joint`, by the labels."""
        if self.step_by_step:
            return self.round(update).value_and_slopes(images, labels, joint)
        slopes, value = torch.func.grad_and_value(self, argnums=(0, 1) if joint else (0,))(images, labels, update)
        return value, *slopes

    def round(self, update: Update) -> LocalRound:
        defense = self.surrogate(update)
        parts = self.model, self.params(update), self.seen.training, defense, self.distance, update
        if self.outer and not defense.acts_at("gradient"):
            return OuterRound(*parts, self.outer)
        return LocalRound(*parts)

    def by_outer_products(self) -> OneTrial:
        return replace(self, outer=outer_layers(self.model, self.params(self.seen.update), self.seen))

    def surrogate(self, update: Update) -> Defense:
        return Defense() if self.seen.defense is None else self.seen.defense.surrogate(update)

    def params(self, update: Update) -> dict[str, Tensor]:
        return {name: p for name, p in self.model.named_parameters() if name in update}  # the rest is frozen


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
        assert self.one.seen.labels is not None
        value, gradient = self.each(fed, self.one.seen.labels, joint=False)
        return value, gradient

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
        value, by_pictures, by_labels = self.each(fed, labels, joint=True)
        return value, by_pictures, by_labels

    def each(self, fed: Images, labels: Labels, joint: bool) -> tuple[Tensor, ...]:
        found = []
        for i in range(fed.shape[0]):
            update = {name: u[i] for name, u in self.one.seen.update.items()}
            way = self.one.value_and_slopes if self.one.step_by_step else self.by_autograd
            found.append(way(joint, fed[i], labels[i], update))
        return tuple(torch.stack(column).detach() for column in zip(*found, strict=True))

    def by_autograd(self, joint: bool, images: Tensor, labels: Tensor, update: Update) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            images, labels = images.detach().requires_grad_(), labels.detach().requires_grad_(joint)
            value = self.one(images, labels, update)
        return value, *torch.autograd.grad(value, (images, labels) if joint else (images,))


@dataclass(frozen=True)
class Vmap:
    one: OneTrial

    def __call__(self, fed: Images) -> tuple[Tensor, Tensor]:
        assert self.one.seen.labels is not None
        value, gradient = self.each(fed, self.one.seen.labels, joint=False)
        return value, gradient

    def joint(self, fed: Images, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
        value, by_pictures, by_labels = self.each(fed, labels, joint=True)
        return value, by_pictures, by_labels

    def each(self, fed: Images, labels: Labels, joint: bool) -> tuple[Tensor, ...]:
        step = torch.func.vmap(partial(self.one.value_and_slopes, joint), randomness="different")
        with Trilinear() if fed.is_cuda else nullcontext():  # a CPU has no kernels that would gain by it
            return tuple(x.detach() for x in step(fed, labels, dict(self.one.seen.update)))
