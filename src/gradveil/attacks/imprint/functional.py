"""What a Robbing-the-Fed layer measures of a picture, and where its bins lie."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed, normal

Spread = Literal["auto", "gaussian", "laplace"]
FAR = 10.0  # standard deviations: nothing lies beyond
FEWEST = 8  # public pictures that quantiles are taken from
GRID = 4096
FOURIER = re.compile(r"fourier:(\d{1,6})")
MEAN_SPREAD = 0.5  # standard deviation of a natural picture's mean brightness, in those of a pixel


@dataclass(frozen=True, kw_only=True)
class Functional:
    """`mean`, `fourier:MODE` or `random`: a weight per pixel, and what is assumed of it on standardized pictures.

    `fourier` is the cosine of the authors' code, over the flattened picture; its values are assumed to be Laplacian
    with variance 1, the others normal.
    """

    text: str

    def __post_init__(self) -> None:
        if self.text not in ("mean", "random") and not FOURIER.fullmatch(self.text):
            raise ConfigError(f"functional = {self.text!r} is unknown, take mean, random or fourier:32", key="rtf")

    def weights(self, pixels: int, seed: Seed, like: Tensor) -> Float[Tensor, " pixel"]:
        if self.text == "random":
            drawn = normal((pixels,), seed.rng(), like)
            return (drawn - drawn.mean()) / drawn.std() / math.sqrt(pixels)
        if self.text == "mean":
            return torch.full((pixels,), 1 / pixels).to(like)
        mode = int(self.text.partition(":")[2])
        place = torch.arange(pixels, dtype=torch.float64) + 0.5
        return (torch.cos(math.pi / pixels * mode * place) / pixels * max(mode, 0.33) * 4).to(like)

    @property
    def spread(self) -> Spread:
        return "laplace" if FOURIER.fullmatch(self.text) else "gaussian"

    @property
    def scale(self) -> float:
        return MEAN_SPREAD if self.text == "mean" else 1.0


def levels_of(neurons: int, target: float) -> Float[Tensor, " edge"]:
    """The shares of all pictures below the edges: bins of equal probability, or one of probability `target`."""
    if target:
        return torch.tensor([0.5 - target / 2, 0.5 + target / 2], dtype=torch.float64)
    return torch.arange(neurons, dtype=torch.float64) / neurons


def assumed_quantiles(levels: Tensor, spread: Spread, scale: float) -> Tensor:
    """Quantiles of a distribution with mean 0 and this standard deviation."""
    inside = levels.clamp(1e-12, 1 - 1e-12)
    if spread == "laplace":
        off = inside - 0.5
        return -scale / math.sqrt(2) * off.sign() * torch.log1p(-2 * off.abs())
    return scale * torch.special.ndtri(inside)


def measured_quantiles(levels: Tensor, values: Tensor) -> Tensor:
    """Quantiles of what these values are drawn from, by a kernel estimate: the values' own are uneven."""
    values = values.double().cpu()
    middle = values.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64)).diff().item()
    width = max(0.9 * min(float(values.std()), middle / 1.34) * len(values) ** -0.2, 1e-9)  # Silverman's rule
    grid = torch.linspace(float(values.min()) - 5 * width, float(values.max()) + 5 * width, GRID, dtype=torch.float64)
    below = torch.special.ndtr((grid[:, None] - values) / width).mean(-1)
    right = torch.searchsorted(below, levels).clamp(1, GRID - 1)
    share = ((levels - below[right - 1]) / (below[right] - below[right - 1]).clamp_min(1e-300)).clamp(0, 1)
    return grid[right - 1] + share * (grid[right] - grid[right - 1])


def edges_of(levels: Tensor, values: Tensor | None, spread: Spread, scale: float) -> Float[Tensor, " edge"]:
    """Lower edges of the bins in float64, rising; the first reaches down to all pictures unless one bin is meant."""
    if values is None:
        edges, reach = assumed_quantiles(levels, spread, scale), scale
    else:
        edges, reach = measured_quantiles(levels, values), float(values.double().std())
    if levels[0] == 0:
        edges[0] = edges[1] - FAR * reach
    return edges
