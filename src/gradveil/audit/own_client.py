"""The attacker's own copy of the client, and how much of an update it explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradveil.core.client import gradient_of, in_client_mode, parameters_of, take_steps
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import as_one_client
from gradveil.core.types import Batch, Update

LEAST = -1e6  # of what is explained: a number that a journal can hold


@dataclass(frozen=True)
class OwnClient:
    """The client as an attacker runs it: the model that was sent, and its surrogate of a defense that it knows."""

    model: nn.Module
    training: LocalTraining
    defense: Defense | None

    @classmethod
    def of(cls, seen: Observation, scenario: Scenario) -> OwnClient:
        """With the true steps and rate where the attacker has to estimate them."""
        training = seen.training if seen.training_known else as_one_client(scenario.training.as_attacked(), scenario)
        return cls(in_client_mode(seen.model, training), training, seen.defense)

    def surrogate(self, update: Update) -> Defense:
        return Defense() if self.defense is None else self.defense.surrogate(update)

    def train(self, pictures: Batch, update: Update) -> Update:
        """All before the last stage."""
        surrogate, rng = self.surrogate(update), Seed().rng()  # a surrogate draws nothing
        data = surrogate.data(pictures, rng)
        return self._train(data, update, surrogate, lambda batch: surrogate.batch(batch, rng))

    def train_as_fed(self, pictures: Batch, update: Update, steps: Sequence[Batch]) -> Update:
        """As `train`, where what the defense does to pictures was done: `steps` are the batches that it made."""
        batches = iter(steps)
        return self._train(pictures, update, self.surrogate(update), lambda batch: next(batches))

    def _train(self, data: Batch, update: Update, surrogate: Defense, feed: Callable[[Batch], Batch]) -> Update:
        params = {name: p for name, p in parameters_of(self.model).items() if name in update}
        gradient = surrogate.gradient(gradient_of(self.model, self.training), self.model, Seed().rng())
        *_, last = take_steps(params, data, self.training, feed, gradient)
        return last.update

    def in_steps(self, pictures: Batch, copies: int) -> tuple[Batch, ...]:
        """A batch with copies of every picture, next to each other, cut into the batches of the steps."""
        size = self.training.batch_size
        training = self.training if size is None else replace(self.training, batch_size=size * copies)
        return tuple(training.batches(pictures))

    def send(self, trained: Update, update: Update) -> Update:
        """The last stage, as it is matched with this update: without what the surrogate leaves out."""
        return self.surrogate(update).update(trained, Seed().rng())

    def explain(self, trained: Update, update: Update) -> float:
        return share_explained(update, self.send(trained, update))

    def slope(self, pictures: Batch, update: Update) -> Tensor:
        """How the inner product of both updates moves with every pixel, in one step."""
        once = replace(self, training=replace(self.training, steps=1))
        with torch.enable_grad():
            images = pictures.images.detach().clone().requires_grad_()
            sent = once.send(once.train(Batch(images, pictures.labels), update), update)
            product = torch.stack([(sent[name] * update[name]).sum() for name in sent if name in update]).sum()
            if not product.requires_grad:
                return torch.zeros_like(images)
            (found,) = torch.autograd.grad(product, images, allow_unused=True)
        return torch.zeros_like(images) if found is None else found


def share_explained(update: Update, own: Update) -> float:
    """1 - |update - own|^2 / |update|^2 over the parameters of `own`; an update of zeros has nothing to explain: 0."""
    matched = {name: update[name] for name in own if name in update}
    off, size = squared_length(matched, own), squared_length(matched)
    if not (math.isfinite(off) and math.isfinite(size)):
        return math.nan
    return max(LEAST, 1 - off / size) if size > 0 else 0.0


def share_repeated(update: Update, own: Update, again: Update, own_again: Update) -> float:
    """Of two draws of an update, the share that is left unexplained in both and alike.

    Noise is never the same twice: near 0. What the attacker's client lacks or does wrong comes again: where nothing is
    drawn, it is all that is unexplained.
    """
    names = [name for name in own if name in own_again and name in update]
    left = [
        _flat({name: whole[name] - part[name] for name in names}) for whole, part in ((update, own), (again, own_again))
    ]
    size = math.sqrt(squared_length({n: update[n] for n in names}) * squared_length({n: again[n] for n in names}))
    shared = float(left[0] @ left[1]) if names else 0.0
    if not (math.isfinite(shared) and math.isfinite(size)):
        return math.nan
    return min(-LEAST, shared / size) if size > 0 else 0.0


def squared_length(update: Update, other: Update | None = None) -> float:
    """Of the update, or of its difference to another, in double precision."""
    if not update:
        return 0.0
    return float(_flat(update if other is None else {n: u - other[n] for n, u in update.items()}).square().sum())


def _flat(update: Update) -> Tensor:
    return torch.cat([u.flatten() for u in update.values()]).double()


def share_of_zeros(update: Mapping[str, Tensor]) -> float:
    """Exact zeros."""
    return sum(int((u == 0).sum()) for u in update.values()) / max(1, sum(u.numel() for u in update.values()))


def share_zeroed(update: Update, own: Update) -> float:
    """Of the squared length of `own`, what falls on exact zeros of the update: numbers that a client has left out."""
    size = squared_length(own)
    left_out = {name: u * (update[name] == 0) for name, u in own.items() if name in update}
    return squared_length(left_out) / size if 0 < size < math.inf else 0.0


def share_matched(update: Update, own: Update) -> float:
    """Of the numbers of the update that are not zero, those that take part in the match."""
    count = {name: int((u != 0).sum()) for name, u in update.items()}
    return sum(count[name] for name in own if name in count) / max(1, sum(count.values()))
