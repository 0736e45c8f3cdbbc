"""A weight matrix per trial, as a direction in which the weights move: formed, or only ever multiplied.

Rows are the positions at which a layer looks (pixels of all examples of a trial), [trial, row, input]; its signals
are [trial, row, output]; a weight gradient is rows^T @ signals. `by_columns` says that all of them lie transposed in
memory, so that results should too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


def times(left: Tensor, right: Tensor, by_columns: bool) -> Tensor:
    return torch.bmm(right.mT, left.mT).mT if by_columns else torch.bmm(left, right)


def plus_times(base: Tensor, left: Tensor, right: Tensor, by_columns: bool) -> Tensor:
    """`base`, which is overwritten, plus a product."""
    if by_columns:
        return base.mT.baddbmm_(right.mT, left.mT).mT
    return base.baddbmm_(left, right)


def inner(left: Tensor, right: Tensor) -> Tensor:
    """<left, right> of each trial. Products first, then a sum by halves: a long float32 dot loses 3e-4."""
    return (left * right).flatten(1).sum(1)


class Direction(Protocol):
    def push(self, rows: Tensor) -> Tensor:
        """rows @ v"""
        ...

    def pull(self, signals: Tensor) -> Tensor:
        """signals @ v^T"""
        ...


@dataclass(frozen=True)
class Formed:
    """v itself, [trial, input, output]."""

    v: Tensor
    by_columns: bool

    def push(self, rows: Tensor) -> Tensor:
        return times(rows, self.v, self.by_columns)

    def pull(self, signals: Tensor) -> Tensor:
        return times(signals, self.v.mT, self.by_columns)


@dataclass(frozen=True)
class Ghost:
    """v = a * target + b * gradient, the gradient being rows^T @ signals and never formed.

    For few rows and wide layers the products of rows with rows are far smaller than the gradient.
    """

    rows: Tensor
    signals: Tensor
    target: Tensor
    pushed_target: Tensor
    pushed_gradient: Tensor
    a: Tensor
    b: Tensor
    by_columns: bool

    def push(self, rows: Tensor) -> Tensor:
        return torch.addcmul(self.b * self.pushed_gradient, self.pushed_target, self.a)  # asked for its own rows only

    def pull(self, signals: Tensor) -> Tensor:
        along_target = times(self.a * signals, self.target.mT, self.by_columns)
        mixed = times(self.b * signals, self.signals.mT, self.by_columns)
        return plus_times(along_target, mixed, self.rows, self.by_columns)


@dataclass(frozen=True)
class FormedProducts:
    """<gradient, target> and <gradient, gradient> of each trial, from the gradient itself."""

    gradient: Tensor
    target: Tensor
    by_columns: bool

    @property
    def cross(self) -> Tensor:
        return inner(self.gradient, self.target)

    @property
    def square(self) -> Tensor:
        return torch.linalg.vector_norm(self.gradient.flatten(1), dim=1).square()

    def direction(self, a: Tensor, b: Tensor) -> Formed:
        a, b = a.view(-1, 1, 1), b.view(-1, 1, 1)
        return Formed(torch.addcmul(b * self.gradient, self.target, a), self.by_columns)


@dataclass(frozen=True)
class GhostProducts:
    """The same two products, from what the layer sees and what comes back."""

    rows: Tensor
    signals: Tensor
    target: Tensor
    pushed_target: Tensor
    pushed_gradient: Tensor
    by_columns: bool

    @classmethod
    def of(cls, rows: Tensor, signals: Tensor, target: Tensor, by_columns: bool) -> GhostProducts:
        pushed_target = times(rows, target, by_columns)
        pushed_gradient = times(torch.bmm(rows, rows.mT), signals, by_columns)
        return cls(rows, signals, target, pushed_target, pushed_gradient, by_columns)

    @property
    def cross(self) -> Tensor:
        return inner(self.pushed_target, self.signals)

    @property
    def square(self) -> Tensor:
        return inner(self.pushed_gradient, self.signals)

    def direction(self, a: Tensor, b: Tensor) -> Ghost:
        a, b = a.view(-1, 1, 1), b.view(-1, 1, 1)
        pushed = self.pushed_target, self.pushed_gradient
        return Ghost(self.rows, self.signals, self.target, *pushed, a, b, self.by_columns)


Products = FormedProducts | GhostProducts


def ghost_is_cheaper(rows: int, inputs: int, outputs: int) -> bool:
    """Four products of rows with rows, against forming the gradient."""
    return 2 * rows * (inputs + outputs) < inputs * outputs


def products(rows: Tensor, signals: Tensor, target: Tensor, by_columns: bool) -> Products:
    """Whichever way costs less."""
    if ghost_is_cheaper(rows.shape[1], rows.shape[2], signals.shape[2]):
        return GhostProducts.of(rows, signals, target, by_columns)
    return FormedProducts(times(rows.mT, signals, by_columns), target, by_columns)
