"""Several local steps differentiated one at a time, so that the memory is that of one step, however many there are.

A round is u[t+1] = u[t] + rate * g(w - u[t], x): all that a step needs from those before it is u[t] and what the local
optimizer remembers. So the way there keeps these alone, without a graph, and the way back takes the steps from the last
to the first: each is computed once more with its graph, turns the slope by what it began with into that by what came
before and by x, and is forgotten. That is what checkpointing of every step would do; torch's own does not go through
`torch.func`. It costs one more first-order pass for all steps but the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.func import vjp

from gradveil.core.client import gradient_of
from gradveil.core.defense import Defense
from gradveil.core.local_optimizer import Carry, start_of, take_step
from gradveil.core.local_training import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Params, Update
from gradveil.engine.distance import Distance


@dataclass(frozen=True)
class LocalRound:
    """One client's round as its attacker imitates it, from pictures to the distance, cut into its local steps."""

    model: nn.Module
    params: Params
    training: LocalTraining
    defense: Defense  # a surrogate: it draws nothing
    distance: Distance
    target: Update

    def value_and_slopes(self, images: Tensor, labels: Tensor, joint: bool) -> tuple[Tensor, ...]:
        """The distance, its gradient by the pictures and, if `joint`, by the labels."""
        free = (images, labels) if joint else (images,)
        fed, back_to_free = vjp(partial(self.fed, labels), *free)[:2]
        carries: list[Carry] = [{}]
        for place in range(self.training.steps - 1):
            carries.append(self.after(place, carries[-1], *fed))
        value, slope, by_fed = self.end_of_round(carries.pop(), fed)
        for place in reversed(range(len(carries))):
            slope, by_here = self.step_back(place, carries.pop(), fed, slope)
            by_fed = tuple(a + b for a, b in zip(by_fed, by_here, strict=True))
        return value, *back_to_free(by_fed)

    def fed(self, labels: Tensor, *free: Tensor) -> tuple[Tensor, ...]:
        """Pictures and labels as the steps take them."""
        given = free if len(free) == 2 else (*free, labels)
        return tuple(self.defense.data(Batch(*given), self.rng))

    def after(self, place: int, carry: Carry, images: Tensor, labels: Tensor) -> Carry:
        """One local step, from where the steps before it have led."""
        here, data = start_of(self.params, carry), Batch(images, labels)
        *_, batch = replace(self.training, steps=place + 1).batches(data)
        gradient = self.defense.gradient(gradient_of(self.model, self.training), self.model, self.rng)
        return take_step(self.training, place, carry, here, gradient(here, self.defense.batch(batch, self.rng)))

    def end_of_round(self, carry: Carry, fed: tuple[Tensor, ...]) -> tuple[Tensor, Carry, tuple[Tensor, ...]]:
        """The last step and the distance: its value, and the slopes by what came before and by what is fed."""
        value, back = vjp(self.end, carry, *fed)[:2]
        slope, *by_fed = back(torch.ones_like(value))
        return value, slope, tuple(by_fed)

    def end(self, carry: Carry, images: Tensor, labels: Tensor) -> Tensor:
        update = self.after(self.training.steps - 1, carry, images, labels)["update"]
        sent = self.defense.update(update, self.rng)
        return self.distance(sent, {name: u for name, u in self.target.items() if name in sent})

    def step_back(
        self, place: int, carry: Carry, fed: tuple[Tensor, ...], slope: Carry
    ) -> tuple[Carry, tuple[Tensor, ...]]:
        """The slope after a step to the slopes before it. Its graph ends with this function."""
        back = vjp(partial(self.after, place), carry, *fed)[1]
        before, *by_fed = back(slope)
        return before, tuple(by_fed)

    @property
    def rng(self) -> Generator:
        return Seed().rng()
