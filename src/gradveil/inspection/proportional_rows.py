"""Rows of one layer that point the same way: Robbing the Fed (Fowl et al., ICLR 2022) gives all neurons one functional.

Neurons that agree in weights and bias alike count once: they were tied by somebody, and split no batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log

import torch
from torch import Tensor, nn

from gradveil.inspection.finding import Measurement
from gradveil.inspection.weight_rows import RowLayer, distinct, row_layers

CHECK = "proportional rows"
FEWEST = 8
FEW, MANY = 0.05, 0.5  # shares of a layer: so many rows nearly the same, or so many roughly the same
SHORT, FEW_SHORT = 16, 0.25  # filters of few inputs, pruned to one or two weights, repeat themselves
SMALL, LARGE = (2, 0.9999), (256, 0.98)  # (inputs, cosine): the fewer the inputs, the more alike rows are by chance
ROUGHLY = 7.0  # 1 - cosine of "roughly", in that of "nearly"
LONG, COMMON = 64, 0.2  # mean squared cosine of rows of so many inputs; trained honest ones reached 0.11


def proportional_rows(model: nn.Module) -> Iterator[Measurement]:
    for layer in row_layers(model):
        kept = distinct(layer)
        if kept.neurons >= FEWEST:
            alike, cosine = cosines(kept.rows).abs(), cosine_for(kept.inputs)
            yield _measure(kept, alike, cosine, FEW if kept.inputs >= SHORT else FEW_SHORT)
            yield _measure(kept, alike, 1 - ROUGHLY * (1 - cosine), MANY)
            if kept.inputs >= LONG and kept.neurons >= 2 * FEWEST:
                yield _common(kept, alike)


def _measure(layer: RowLayer, alike: Tensor, cosine: float, share: float) -> Measurement:
    most = int((alike >= cosine).sum(1).max())
    threshold = max(float(FEWEST), share * layer.neurons)
    return Measurement(
        check=CHECK,
        layer=layer.name,
        statistic=float(most),
        threshold=threshold,
        found=most >= threshold,
        sentence=f"{most} of {layer.neurons} neurons measure the same direction (cosine {cosine:.4g} or more "
        "up to the sign), so that the differences of their gradients single out pictures",
        details={"cosine": cosine, "neurons": float(layer.neurons), "inputs": float(layer.inputs)},
    )


def _common(layer: RowLayer, alike: Tensor) -> Measurement:
    """All rows lean one way, though each has noise of its own."""
    neurons = layer.neurons
    mean = ((alike.square().sum() - neurons) / (neurons * (neurons - 1))).item()
    return Measurement(
        check=CHECK,
        layer=layer.name,
        statistic=mean,
        threshold=COMMON,
        found=mean >= COMMON,
        sentence=f"{neurons} neurons share one direction under what else they measure (mean squared cosine {mean:.2g})",
        details={"neurons": float(neurons), "inputs": float(layer.inputs)},
    )


def cosines(rows: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(rows, dim=1)
    return unit @ unit.T


def cosine_for(inputs: int) -> float:
    """How alike two rows must be: 1 - cosine grows with the logarithm of the inputs, between two fixed points."""
    (few, strict), (many, loose) = SMALL, LARGE
    along = min(1.0, max(0.0, log(inputs / few) / log(many / few)))
    return 1 - exp((1 - along) * log(1 - strict) + along * log(1 - loose))
