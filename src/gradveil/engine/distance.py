"""Distances between a dummy update and the one received. Written for one client; smaller is closer."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

import torch
from torch import Tensor

from gradveil.core.errors import NotApplicableError
from gradveil.core.types import Update

SHOWN = 4  # names that an error gives as examples


class Distance(Protocol):
    def __call__(self, dummy: Update, seen: Update) -> Tensor: ...


class ProductDistance(Distance, Protocol):
    """A distance that needs only inner products, tensor by tensor: the fast sweep then never forms the gradient.

    `of_products(cross, own, target)` takes <dummy, seen>, <dummy, dummy> and <seen, seen>, each [..., tensor].
    """

    def of_products(self, cross: Tensor, squares: Tensor, target: Tensor) -> Tensor: ...


def names_to_match(names: list[str], only: tuple[str, ...], without: tuple[str, ...]) -> list[str]:
    """The tensors that take part in the match; patterns as in file names.

    >>> names_to_match(["conv.weight", "fc.weight", "fc.bias"], (), ("fc.*",))
    ['conv.weight']
    """
    matched = [n for n in names if not only or any(fnmatchcase(n, p) for p in only)]
    matched = [n for n in matched if not any(fnmatchcase(n, p) for p in without)]
    if not matched:
        more = ", ..." if len(names) > SHOWN else ""
        raise NotApplicableError(
            f"only = {list(only)}, without = {list(without)}: nothing is left to match, change the patterns; "
            f"the update holds {', '.join(names[:SHOWN])}{more}"
        )
    return matched


@dataclass(frozen=True)
class Unmatched:
    """Zero: the update is not looked at, and the priors alone decide."""

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        return next(iter(seen.values())).new_zeros(())


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """1 - cosine: of the flat update, or the mean over tensors if `per_tensor`."""

    per_tensor: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        names = names_to_match(list(seen), self.only, self.without)
        pairs = [(dummy[n].flatten(), seen[n].flatten()) for n in names]
        cross = torch.stack([(d * s).sum() for d, s in pairs])
        squares = torch.stack([(d * d).sum() for d, _ in pairs])
        target = torch.stack([(s * s).sum() for _, s in pairs])
        return self.of_products(cross, squares, target)

    def of_products(self, cross: Tensor, squares: Tensor, target: Tensor) -> Tensor:
        tiny = torch.finfo(cross.dtype).tiny
        if self.per_tensor:
            return 1 - _quotient(cross, squares.clamp_min(tiny).sqrt() * target.clamp_min(tiny).sqrt()).mean(-1)
        lengths = squares.sum(-1).clamp_min(tiny).sqrt() * target.sum(-1).clamp_min(tiny).sqrt()
        return 1 - _quotient(cross.sum(-1), lengths)


def _quotient(cross: Tensor, lengths: Tensor) -> Tensor:
    """NaN where the lengths overflow: divided by infinity, every update would look orthogonal to every other."""
    return (cross / lengths).masked_fill(lengths.isinf(), torch.nan)


@dataclass(frozen=True, kw_only=True)
class L2:
    """Sum (or mean over elements of each tensor, `per_tensor`) of squared differences.

    `relative` divides by the same of the update itself, so that one weight of a prior serves all models.
    """

    per_tensor: bool = False
    relative: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        names = names_to_match(list(seen), self.only, self.without)
        apart = self.size([(dummy[n] - seen[n]).square() for n in names])
        if not self.relative:
            return apart
        return apart / self.size([seen[n].square() for n in names]).clamp_min(torch.finfo(apart.dtype).tiny)

    def size(self, squares: list[Tensor]) -> Tensor:
        return torch.stack([s.mean() if self.per_tensor else s.sum() for s in squares]).sum()

    def with_slopes(self, dummy: Update, seen: Update) -> tuple[Tensor, dict[str, Tensor]]:
        """Value and slopes of many trials, written out: the general way costs twice the time on small models."""
        names = names_to_match(list(seen), self.only, self.without)
        apart = {n: dummy[n] - seen[n] for n in names}
        scale = (
            self.sum_squares(seen, names).clamp_min(torch.finfo(seen[names[0]].dtype).tiny) if self.relative else None
        )
        value = self.sum_squares(apart, names)
        slopes = {}
        for n, a in apart.items():
            share = 2 / a[0].numel() if self.per_tensor else 2.0
            slopes[n] = share * a if scale is None else a * (share / scale).view(-1, *[1] * (a.dim() - 1))
        return value if scale is None else value / scale, slopes

    def sum_squares(self, tensors: Update, names: list[str]) -> Tensor:
        squares = [tensors[n].square().flatten(1) for n in names]
        return torch.stack([s.mean(1) if self.per_tensor else s.sum(1) for s in squares]).sum(0)


@dataclass(frozen=True, kw_only=True)
class L1:
    """Sum (or mean over elements of each tensor, `per_tensor`) of absolute differences; `relative` as in `L2`."""

    per_tensor: bool = False
    relative: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        names = names_to_match(list(seen), self.only, self.without)
        apart = self.size([(dummy[n] - seen[n]).abs() for n in names])
        if not self.relative:
            return apart
        return apart / self.size([seen[n].abs() for n in names]).clamp_min(torch.finfo(apart.dtype).tiny)

    def size(self, each: list[Tensor]) -> Tensor:
        return torch.stack([e.mean() if self.per_tensor else e.sum() for e in each]).sum()
