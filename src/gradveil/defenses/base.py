"""A defense: the identity at five stages. Override the stage you protect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, nn

from gradveil.types import Batch, GradientFn, Update


@dataclass(frozen=True)
class Paper:
    """Where a method comes from."""

    title: str
    authors: str
    year: int
    where: str

    def __str__(self) -> str:
        return f"{self.authors}, {self.title}, {self.year}, {self.where}"


@dataclass(frozen=True)
class Defense:
    """No defense: the update as it is.

    Stages run in the order of the methods below; see `gradveil.client`. `stronger` names the options that make a
    defense stronger as they grow: an audit in which more of it leaks more has something wrong.
    """

    stronger: ClassVar[tuple[str, ...]] = ()

    def model(self, model: nn.Module) -> nn.Module:
        """Once, when the federation agrees on the architecture."""
        return model

    def data(self, data: Batch, rng: Generator) -> Batch:
        """Once a round, on the client's own data."""
        return data

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        """Every local step."""
        return batch

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        """Around the gradient: per-example clipping lives here."""
        return compute

    def update(self, update: Update, rng: Generator) -> Update:
        """Last, on what is sent."""
        return update

    def acts_at(self, stage: str) -> bool:
        """Whether this defense does anything at a stage: engines skip what is the identity."""
        return getattr(type(self), stage) is not getattr(Defense, stage)

    def surrogate(self, seen: Update) -> Defense:
        """What an attacker who knows this defense runs in its place on dummy data: differentiable, drawing nothing.

        `seen` is one client's update as received. The default models no defense at all; a defense that leaves it at
        that names no adaptive attacker, and no audit can say more of it than "not evaluated".
        """
        return Defense()

    @property
    def has_adaptive_attacker(self) -> bool:
        return type(self).surrogate is not Defense.surrogate
