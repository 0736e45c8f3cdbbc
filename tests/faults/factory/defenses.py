"""Defenses that nobody would ship, of which it is plain what they give away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import torch
from torch import Generator, Tensor

from gradveil.audit.audit import Audit
from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed, normal
from gradveil.core.types import Update


def use(kind: Callable[[], Defense]) -> Callable[[Audit, Random], Audit]:
    """The audit with this defense beside the undefended model."""

    def change(audit: Audit, rng: Random) -> Audit:
        return replace(audit, defenses={"none": Defense(), "d": kind()}, settings=with_defense(audit, kind))

    return change


def with_defense(audit: Audit, kind: Callable[[], Defense]) -> Mapping[str, object]:
    """The settings as they are written into the folder: a name that no catalogue has."""
    name = getattr(kind, "__name__", str(kind)).lower()
    return {**audit.settings, "defense": {"none": {"name": "none"}, "d": {"name": name}}}


def signs(update: Update) -> dict[str, Tensor]:
    """Plus or minus one for every number; public."""
    return {name: _signs(tuple(u.shape)) for name, u in update.items()}


@cache
def _signs(shape: tuple[int, ...]) -> Tensor:
    drawn = torch.rand(shape, generator=Seed(7).at(*shape).rng())
    return torch.where(drawn < 0.5, -1.0, 1.0)


@dataclass(frozen=True)
class Scrambled(Defense):
    """Turns the sign of numbers that a public list names. Who does not know the list sees a jumble."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u * sign for (name, u), sign in zip(update.items(), signs(update).values(), strict=True)}

    def surrogate(self, seen: Update) -> Defense:
        return self


@dataclass(frozen=True)
class Halved(Defense):
    """Puts public constants into the place of numbers that a public list names."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: torch.where(sign > 0, update[name], 0.05 * sign.flip(0)) for name, sign in signs(update).items()}

    def surrogate(self, seen: Update) -> Defense:
        return self


@dataclass(frozen=True)
class NamedStrong(Defense):
    """Does nothing."""

    def update(self, update: Update, rng: Generator) -> Update:
        return dict(update)

    def surrogate(self, seen: Update) -> Defense:
        return self


@dataclass(frozen=True)
class Fresh(Defense):
    """Sends noise. Nobody can model it better than by no defense at all."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: 0 * u + normal(u.shape, rng, u) for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Defense()
