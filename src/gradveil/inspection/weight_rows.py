"""The layers of a model as rows of weights, whatever module holds them, and what else tells the rows apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from math import sqrt

import torch
from torch import Tensor, nn

from gradveil.core.seeds import Seed
from gradveil.inspection.examine import Measurement

MOST_ROWS = 2048  # more are sampled: the checks compare every row with every other


@dataclass(frozen=True, kw_only=True)
class RowLayer:
    """One neuron or filter a row. `offsets` holds its bias, or the normalization's numbers that stand for one."""

    name: str
    rows: Tensor  # [neuron, input], float64
    offsets: Tensor  # [neuron, kind], float64; no column where nothing follows

    @property
    def neurons(self) -> int:
        return self.rows.shape[0]

    @property
    def inputs(self) -> int:
        return self.rows.shape[1]

    def take(self, which: Tensor) -> RowLayer:
        return RowLayer(name=self.name, rows=self.rows[which], offsets=self.offsets[which])


def row_layers(model: nn.Module, fewest: int = 8) -> Iterator[RowLayer]:
    """Every weight with `fewest` rows or more, by parameters alone: a module's class proves nothing."""
    parameters = [(name, p.detach()) for name, p in model.named_parameters()]
    for place, (name, weight) in enumerate(parameters):
        if weight.ndim < 2 or weight.shape[0] < fewest or weight[0].numel() < 2:
            continue
        rows = weight.flatten(1).double().cpu()
        layer = RowLayer(name=name, rows=rows, offsets=_offsets(parameters[place + 1 :], len(rows)))
        yield layer if len(rows) <= MOST_ROWS else layer.take(_sample(len(rows), name))


def _offsets(following: list[tuple[str, Tensor]], neurons: int) -> Tensor:
    """One number a row: the bias, and a normalization that comes before the next weight."""
    found: list[Tensor] = []
    for _, parameter in following:
        if parameter.ndim > 1:
            break
        if parameter.shape == (neurons,):
            found.append(parameter.double().cpu())
    return torch.stack(found, 1) if found else torch.zeros(neurons, 0, dtype=torch.float64)


def _sample(neurons: int, name: str) -> Tensor:
    return torch.randperm(neurons, generator=Seed(0).at("inspection", name).rng())[:MOST_ROWS].sort().values


def distinct(layer: RowLayer) -> RowLayer:
    """Without dead rows, and with one of every set of rows that agree in all: tied neurons are no threshold each."""
    alive = layer.take(layer.rows.norm(dim=1) > 0)
    if alive.offsets.shape[1] == 0:
        return alive
    first: dict[bytes, int] = {}
    for place, numbers in enumerate(torch.cat([alive.rows, alive.offsets], 1).numpy()):
        first.setdefault(blake2b(numbers.tobytes()).digest(), place)
    return alive.take(torch.tensor(list(first.values()), dtype=torch.long))


CHECK = "bias ladder"
FEWEST = 8
CHANCE, SPREAD = 0.386, 0.28  # of one ratio, for independent numbers
DEVIATIONS = 7.0
LEAST, MOST = 0.7, 0.85  # bounds of the threshold: rounding evens honest biases a little
MOST_TIES = 0.1  # more: rounded to a grid, whose gaps are all alike


def bias_ladder(model: nn.Module) -> Iterator[Measurement]:
    for layer in row_layers(model, FEWEST):
        for offsets in layer.offsets.T:
            gaps = offsets.sort().values.diff()
            if len(gaps) + 1 >= FEWEST and (gaps == 0).double().mean() <= MOST_TIES:
                yield _measure(layer.name, evenness(gaps[gaps > 0]), len(gaps))


def evenness(gaps: Tensor) -> float:
    """The mean ratio of neighboring gaps, the smaller over the larger."""
    return (gaps[1:].minimum(gaps[:-1]) / gaps[1:].maximum(gaps[:-1])).mean().item()


def _measure(name: str, even: float, gaps: int) -> Measurement:
    threshold = min(MOST, max(LEAST, CHANCE + DEVIATIONS * SPREAD / sqrt(gaps - 1)))
    return Measurement(
        check=CHECK,
        layer=name,
        statistic=even,
        threshold=threshold,
        found=even >= threshold,
        sentence=f"the sorted biases rise in steps of which neighbors agree to {even:.0%} (independent numbers: 39 %), "
        "as bins that sort pictures by one scalar do",
        details={"biases": gaps + 1.0},
    )
