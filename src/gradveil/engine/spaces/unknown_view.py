"""Pictures as the model saw them, by an attacker who knows what may have been done to them, but not what was.

A policy that draws a sign or one of several alternatives leaves a few functions that a client may have applied: the
views of the defense. Each picture goes through one of them on its way to the model, and is reported as it was before.

Which one is a guess: every view is tried in a short search, and the best match is kept (`likeliest`). Each picture of a
batch has drawn its own. They are first tried with one view for all of them; then each is tried through every view
while the others keep theirs, and all change to their best at once, up to three times. That is views x pictures
searches a round, where all combinations would be views ** pictures. All guesses of a client start from the same point
and have the same weight of each prior; nothing depends on who else is there. Shifts and turns leave a border that gives
them away; a gain does not, and is guessed less surely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gradveil.core.errors import NotApplicableError
from gradveil.core.knowledge import View
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images, Latent
from gradveil.engine.priors.group import GroupConsistency
from gradveil.engine.priors.prior import Prior
from gradveil.engine.spaces.joint_labels import JointLabels
from gradveil.engine.spaces.learned_translation import Part, Transformed
from gradveil.engine.spaces.space import BoundSpace, Pixels, Reveal, Space

Guess = tuple[int, ...]  # the number of the view of each picture of a client
Guesses = Mapping[str, tuple[Guess, ...]]  # by the client's name; its restarts take them in turn

PLAIN = Pixels()
SHARE = 8  # of the full search's steps, one in so many
FEWEST = 100  # steps in which a picture begins to show
SHOWN = 16  # views that a note names
ROUNDS = 3  # at most, of one picture after the other


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
                "this attacker knows of no policy of transformations, "
                "take the adaptive attacker on a defense that has one, or take invertgrad",
                key="known-policy",
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


def transforms(space: Space) -> bool:
    """Whether what is fed is not what is searched for."""
    return isinstance(_pictures(space), Transformed | Part | Viewed)


def through(space: Space, views: tuple[View, ...], guesses: Guesses) -> Space:
    """The same space, looked at through these views."""
    if isinstance(space, JointLabels):
        return replace(space, space=through(space.space, views, guesses))
    if isinstance(space, Viewed):
        return replace(space, views=views, guesses=guesses)
    return Viewed(inner=space, views=views, guesses=guesses)


def within(space: Space, inner: Space) -> Space:
    """Another space behind the same views."""
    return replace(space, inner=inner) if isinstance(space, Viewed) else inner


def _pictures(space: Space) -> Space:
    return _pictures(space.space) if isinstance(space, JointLabels) else space


Scout = Callable[[Guesses], Tensor]  # to the match of every guess, [client, guess]; as many guesses for each client


def likeliest(
    scout: Scout, names: Sequence[str], views: tuple[View, ...], examples: int
) -> tuple[Guesses, tuple[str, ...]]:
    """The best guess of every client, and a note of what was tried and chosen."""
    best = dict.fromkeys(names, (0,) * examples)
    if len(views) > 1:
        best = _with_one_for_all(scout, names, len(views), examples)
    for _ in range(ROUNDS if len(views) > 1 and examples > 1 else 0):
        before, best = best, _picture_by_picture(scout, names, best, len(views))
        if best == before:  # who has come to rest stays there
            break
    return {name: (guess,) for name, guess in best.items()}, (_describe(best, views),)


def _with_one_for_all(scout: Scout, names: Sequence[str], views: int, examples: int) -> dict[str, Guess]:
    alike = tuple((number,) * examples for number in range(views))
    lowest = _lowest(scout(dict.fromkeys(names, alike))).tolist()
    return {name: alike[place] for name, place in zip(names, lowest, strict=True)}


def _picture_by_picture(scout: Scout, names: Sequence[str], best: Mapping[str, Guess], views: int) -> dict[str, Guess]:
    """Each picture through every view while the others keep theirs; then all change to their best at once."""
    match = scout({name: tuple(_variants(guess, views)) for name, guess in best.items()})
    lowest = _lowest(match.unflatten(1, (-1, views))).tolist()
    return {name: tuple(row) for name, row in zip(names, lowest, strict=True)}


def _lowest(match: Tensor) -> Tensor:
    """A search that broke down is no match."""
    return match.nan_to_num(nan=float("inf")).argmin(-1)


def _describe(best: Mapping[str, Guess], views: tuple[View, ...]) -> str:
    drawn = Counter(views[number].name for guess in best.values() for number in guess).most_common()
    each = ", ".join(f"{name} ({often}x)" for name, often in drawn[:SHOWN])
    more = f" and {len(drawn) - SHOWN} others" if len(drawn) > SHOWN else ""
    return f"{len(views)} views of the known policy tried, chosen: {each}{more}"


def _variants(guess: Guess, views: int) -> list[Guess]:
    return [(*guess[:place], view, *guess[place + 1 :]) for place in range(len(guess)) for view in range(views)]


def steps_of(steps: int) -> int:
    """Of a scouting search."""
    return min(steps, max(FEWEST, steps // SHARE))


def alone(priors: tuple[Prior, ...]) -> tuple[Prior, ...]:
    """The priors of one start: the middle one of several weights, and no other start to agree with."""
    return tuple(_of_one_weight(prior) for prior in priors if not isinstance(prior, GroupConsistency))


def _of_one_weight(prior: Any) -> Prior:
    weight = getattr(prior, "weight", None)
    return replace(prior, weight=sorted(weight)[len(weight) // 2]) if isinstance(weight, tuple) else prior
