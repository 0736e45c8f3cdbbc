"""From an encoding back to the picture (LODA, equations 5 and 6).

At the end of LODA's descent the gradient of its objective is zero, and the private picture is the only unknown in it.
The encoding itself solves equation 6 as well, for every c: where a search starts, and when it ends, decides which of
the two it finds. It starts at the mean public picture, never at the encoding. Differs: at a pixel that the projection
holds at 0 or 1 the gradient need only point outward (`projected`); squares are relative to those at the start, so that
a TV weight means the same for every extractor; `aim = "features"` looks for a smooth picture with the same features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradveil.core.progress import leave_if_stopped
from gradveil.defenses.loda.obscure import UNIT, Extract, Reduce, Scale, size, weigh

Aim = Literal["stationary", "features"]
AT_THE_EDGE = 1e-3  # how near to 0 or 1 a pixel counts as held there
SMALL = 1e-12


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to search for the picture behind an encoding; `steps` 0 takes the encoding for the picture."""

    aim: Aim = "stationary"
    c: float = 1.0
    tv: float = 0.0
    steps: int = 100

    def __str__(self) -> str:
        if not self.steps:
            return "the encoding as it is"
        what = f"c = {self.c:g}" if self.aim == "stationary" else "features"
        return f"{what}, TV {self.tv:g}, {self.steps} steps"


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """What the search goes by: the encodings, the features, and how squares are summed there."""

    extract: Extract
    reduce: Reduce = "sum"
    scale: Scale = UNIT
    rate: float = 0.05
    projected: bool = True

    def runs(self, encodings: Tensor, start: Tensor, way: Way, at: Sequence[int]) -> dict[int, Tensor]:
        """The pictures after so many steps; one search serves all of them."""
        missing = self.missing(encodings, way)
        x = start.expand_as(encodings).clone().requires_grad_()
        with torch.no_grad():
            first = missing(x).clamp_min(SMALL)
        optimizer, kept = torch.optim.Adam([x], lr=self.rate), {}
        for step in range(1, max(at) + 1):
            leave_if_stopped()
            with torch.enable_grad():
                loss = (missing(x) / first + way.tv * roughness(x)).sum()
                (x.grad,) = torch.autograd.grad(loss, x)
            optimizer.step()
            with torch.no_grad():
                x.clamp_(0, 1)
            if step in at:
                kept[step] = x.detach().clone()
        return kept

    def missing(self, encodings: Tensor, way: Way) -> Callable[[Tensor], Tensor]:
        """How far a picture is from having this encoding, [picture]."""
        if way.aim == "stationary":
            return self.slope_left(encodings, way.c)
        with torch.no_grad():
            wanted = [feature.detach() for feature in self.extract(encodings)]
        return lambda x: sum_of([size(a - b, self.reduce) for a, b in zip(self.extract(x), wanted, strict=True)])

    def slope_left(self, encodings: Tensor, c: float) -> Callable[[Tensor], Tensor]:
        """Equation 6: the squared gradient of LODA's objective at the encoding, for a picture that is guessed."""
        with torch.enable_grad():
            inside = self.scale.inside(encodings).detach().requires_grad_()
            there = self.extract(self.scale.pictures(inside))

        def distance(x: Tensor) -> Tensor:
            with torch.enable_grad():
                apart = [weigh(a.detach() - b, self.reduce) for a, b in zip(there, self.extract(x), strict=True)]
                (pulled,) = torch.autograd.grad(there, inside, apart, create_graph=True)
                slope = pulled - c * weigh(inside.detach() - self.scale.inside(x), self.reduce)
                return size(outward_left_out(slope, encodings) if self.projected else slope, "sum")

        return distance


def outward_left_out(slope: Tensor, encodings: Tensor) -> Tensor:
    """At 0 a slope upward, and at 1 one downward, is what the projection has stopped: no fault."""
    slope = torch.where(encodings <= AT_THE_EDGE, slope.clamp_max(0), slope)
    return torch.where(encodings >= 1 - AT_THE_EDGE, slope.clamp_min(0), slope)


def roughness(x: Tensor) -> Tensor:
    """Total variation: the mean absolute difference of neighbors, down plus right. [picture]"""
    down, right = x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]
    return down.abs().flatten(1).mean(1) + right.abs().flatten(1).mean(1)


def sum_of(each: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(each)).sum(0)
