"""Algorithm 1 of LODA (Wan et al., 2022): away from the picture, near to its features, by steps of one length.

The paper leaves open whether squares are summed or averaged and in which units pixels are. `Loda` sums them and has
pixels in the units of the extractor's normalization; which reading comes nearest to the paper's tables depends on the
extractor. In [0, 1] sums hide nothing at the paper's weights (docs/decisions/0016-loda-reading.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gradveil.core.cuda_graph import Step, capture_step
from gradveil.core.errors import ConfigError
from gradveil.core.progress import leave_if_stopped
from gradveil.models.normalize import constants_of

Reduce = Literal["sum", "mean"]
Units = Literal["unit", "normalized"]
Extract = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Equation 4 and how it is descended. `c` pushes pixels away; `reduce` is for each layer and for the pixels."""

    c: float = 20.0
    steps: int = 500
    rate: float = 0.1
    reduce: Reduce = "sum"

    def __post_init__(self) -> None:
        if not (self.c >= 0 and self.rate > 0 and self.steps >= 1):
            raise ConfigError(
                f"loda: c = {self.c}, rate = {self.rate}, steps = {self.steps} is out of range, "
                "take c >= 0, rate > 0 and steps >= 1"
            )


@dataclass(frozen=True)
class Scale:
    """The units of pixels: [0, 1], or those of the extractor's normalization, in which steps are then taken."""

    mean: Tensor | float = 0.0
    std: Tensor | float = 1.0

    @classmethod
    def of(cls, units: Units, model: torch.nn.Module, like: Tensor) -> Scale:
        if units == "unit":
            return cls()
        mean, std = (x.to(like).view(-1, 1, 1) for x in constants_of(model, like.shape[-3]))
        return cls(mean, std)

    def inside(self, pictures: Tensor) -> Tensor:
        return (pictures - self.mean) / self.std

    def pictures(self, inside: Tensor) -> Tensor:
        return inside * self.std + self.mean


UNIT = Scale()


def size(x: Tensor, reduce: Reduce) -> Tensor:
    squares, within = x.square(), tuple(range(1, x.dim()))  # not flattened: that would copy what is channels last
    return squares.sum(within) if reduce == "sum" else squares.mean(within)


def obscure(pictures: Tensor, starts: Tensor, extract: Extract, recipe: Recipe, scale: Scale = UNIT) -> Tensor:
    """Encodings of the pictures, all at once and each on its own: [n, c, h, w] in [0, 1]."""
    with torch.no_grad():
        wanted = [feature.detach() for feature in extract(pictures)]
    private, x = scale.inside(pictures), scale.inside(starts).clone()

    def step() -> Tensor:
        slope = slope_at(x, private, wanted, extract, recipe, scale)
        return x.copy_(project(x - recipe.rate * of_length_one(slope), scale))

    advance = replay(step, x)
    for _ in range(recipe.steps):
        leave_if_stopped()
        advance()
    return scale.pictures(x).clamp(0, 1)  # once more: the way back from other units may round


def replay(step: Step, x: Tensor) -> Step:
    """Without the launches where the device has graphs; as it is where not, or where the step cannot be captured."""
    if not x.is_cuda:
        return step
    try:
        return capture_step(step, (x,))
    except RuntimeError:
        return step


def slope_at(
    x: Tensor, private: Tensor, wanted: Sequence[Tensor], extract: Extract, recipe: Recipe, scale: Scale = UNIT
) -> Tensor:
    """Half the gradient of every picture's equation 4. Squares are not summed up first: nobody asks for their sum, and
    each pass over the features costs as much as a layer."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        got = extract(scale.pictures(x))
    apart = [weigh(a.detach() - b, recipe.reduce) for a, b in zip(got, wanted, strict=True)]
    (pulled,) = torch.autograd.grad(got, x, apart)
    return pulled - recipe.c * weigh(x.detach() - private, recipe.reduce)


def weigh(apart: Tensor, reduce: Reduce) -> Tensor:
    """Half the gradient of `size` in what is apart."""
    return apart if reduce == "sum" else apart / apart[0].numel()


def of_length_one(slope: Tensor) -> Tensor:
    """Per picture; where there is no slope there is no step."""
    length = slope.flatten(1).norm(dim=1).clamp_min(torch.finfo(slope.dtype).tiny)
    return slope / length.view(-1, 1, 1, 1)


def project(x: Tensor, scale: Scale) -> Tensor:
    return scale.inside(scale.pictures(x).clamp(0, 1))
