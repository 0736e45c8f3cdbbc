"""Pictures as the model saw them, by an attacker who knows what may have been done to them.

A policy that draws a sign or one of several alternatives leaves a few functions that a client may have applied: the
views of the defense. Here each picture goes through one of them on its way to the model, and is reported as it was
before. Which one is a guess; `guessing` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gradveil.core.errors import NotApplicableError
from gradveil.core.knowledge import View
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Latent
from gradveil.engine.spaces.joint_labels import JointLabels
from gradveil.engine.spaces.learned_translation import Part, Transformed
from gradveil.engine.spaces.pixels import BoundSpace, Pixels, Reveal, Space

Guess = tuple[int, ...]  # the number of the view of each picture of a client
Guesses = Mapping[str, tuple[Guess, ...]]  # by the client's name; its restarts take them in turn

PLAIN = Pixels()


@dataclass(frozen=True, kw_only=True)
class Viewed:
    """The pictures of another space, each through a view. Every guess of a client starts where the others do."""

    inner: Space = PLAIN
    views: tuple[View, ...] = ()
    guesses: Guesses = field(default_factory=dict)
    reveal: Reveal = "private"

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundViewed:
        if not self.views:
            raise NotApplicableError(
                "known-policy: this attacker knows of no policy of transformations, "
                "take the adaptive attacker on a defense that has one, or take invertgrad"
            )
        numbers = [0] * len(seen.names) if restarts is None else restarts.tolist()
        each = [self.guesses[name] for name in seen.names]
        which = torch.tensor([of_one[number % len(of_one)] for of_one, number in zip(each, numbers, strict=True)])
        look = Look.through(self.views, which, next(iter(seen.update.values())).device)
        return BoundViewed(self, self.inner.bind(seen, restarts), look)


@dataclass(frozen=True)
class BoundViewed:
    space: Viewed
    inner: BoundSpace
    look: Look

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        return self.inner.init(seed, name, restart // len(self.space.guesses[name]))

    def decode(self, z: Latent) -> Images:
        return self.look(self.inner.decode(z))

    def reveal(self, z: Latent) -> Images:
        pictures = self.inner.reveal(z)
        return pictures if self.space.reveal == "private" else self.look(pictures)

    def smooth(self, z: Latent) -> Images:
        return self.inner.smooth(z)

    def constrain(self, z: Latent) -> Latent:
        return self.inner.constrain(z)


@dataclass(frozen=True)
class Look:
    """A view for each picture. They are sorted by view once, so that a step runs each view once, on all that have it,
    and always on as many: a CUDA graph can be made of it."""

    views: tuple[View, ...]
    counts: list[int]  # pictures that have each view
    order: Tensor
    back: Tensor

    @classmethod
    def through(cls, views: tuple[View, ...], which: Tensor, device: torch.device) -> Look:
        """`which` has the number of the view of each picture, [trial, example]."""
        order = which.flatten().argsort(stable=True)
        counts = which.flatten().bincount(minlength=len(views)).tolist()
        return cls(views, counts, order.to(device), order.argsort().to(device))

    def __call__(self, pictures: Images) -> Images:
        groups = pictures.flatten(0, 1).index_select(0, self.order).split(self.counts)
        seen = [view.apply(group) for view, group in zip(self.views, groups, strict=True) if len(group)]
        return torch.cat(seen).index_select(0, self.back).view_as(pictures)


def learns_the_policy(space: Space) -> bool:
    """Whether the space has a model of the transformation of its own, which needs no guess."""
    return isinstance(_pictures(space), Transformed | Part)


def through(space: Space, views: tuple[View, ...], guesses: Guesses) -> Space:
    """The same space, looked at through these views."""
    if isinstance(space, JointLabels):
        return replace(space, space=through(space.space, views, guesses))
    if isinstance(space, Viewed):
        return replace(space, views=views, guesses=guesses)
    return Viewed(inner=space, views=views, guesses=guesses)


def _pictures(space: Space) -> Space:
    return _pictures(space.space) if isinstance(space, JointLabels) else space
