"""The layers of a model as rows of weights, whatever module holds them, and what else tells the rows apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor, nn

from gradveil.core.seeds import Seed

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
