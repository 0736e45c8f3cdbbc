"""Rows whose signs balance too well: Curious Abandon Honesty (Boenisch et al., EuroS&P 2023) makes half of every row
negative and scales the other half, so that a neuron fires for few pictures.

Signs that fall as they may make the sum of a row a random number of variance |row|^2, and the count of its negatives
one of variance
inputs / 4. Half-negative rows have less of both, and often the same count in every row.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from scipy.stats import binom, chi2, norm
from torch import Tensor, nn

from gradveil.inspection.finding import Measurement
from gradveil.inspection.proportional_rows import cosines
from gradveil.inspection.weight_rows import RowLayer, distinct, row_layers

CHECK = "half-negative rows"
FEWEST, SHORTEST = 16, 16  # neurons and inputs from which on signs can be counted
UNLIKELY = 1e-5  # a chance below this counts as found
BALANCED = 0.5  # of the variance that chance would give; training takes a little of it too
ALIKE = 0.25  # mean squared cosine: rows that are one row tell its signs many times (see `proportional_rows`)


def half_negative(model: nn.Module) -> Iterator[Measurement]:
    for layer in row_layers(model, FEWEST):
        kept = distinct(layer)
        enough = kept.neurons >= FEWEST and kept.inputs >= SHORTEST
        if enough and cosines(kept.rows).square().mean() < ALIKE:
            yield _measure(kept)


def _measure(layer: RowLayer) -> Measurement:
    negatives, sums = (layer.rows < 0).sum(1).double(), layer.rows.sum(1) / layer.rows.norm(dim=1)
    signed = (layer.rows != 0).sum(1).double().mean().item()  # pruning leaves fewer than there are inputs
    counts, spread = 4 * negatives.var().item() / signed, sums.var().item()
    same, chance = _commonest(negatives, signed)
    statistic = min(chance, _too_even(counts, spread, layer.neurons))
    return Measurement(
        check=CHECK,
        layer=layer.name,
        statistic=statistic,
        threshold=UNLIKELY,
        found=statistic < UNLIKELY,
        sentence=f"{same:.0%} of {layer.neurons} rows have the same number of negative weights; counts vary "
        f"{counts:.2g} and sums {spread:.2g} times as much as signs that fall by chance (probability {statistic:.1g})",
        details={"same_count": same, "count_variance": counts, "sum_variance": spread, "mean_sum": sums.mean().item()},
    )


def _too_even(counts: float, spread: float, neurons: int) -> float:
    """The chance of the more even of the two, if both are: pruning evens the counts alone, normalization the sums."""
    if max(counts, spread) >= BALANCED:
        return 1.0
    return float(chi2.cdf((neurons - 1) * min(counts, spread), neurons - 1))


def _commonest(negatives: Tensor, signed: float) -> tuple[float, float]:
    """The share of rows with the commonest number of negatives, and the chance of so many."""
    values, times = torch.unique(negatives, return_counts=True)
    most = int(times.max())
    tried = len(values) * binom.sf(most - 1, len(negatives), norm.pdf(0) * 2 / signed**0.5)
    return most / len(negatives), float(min(1.0, tried))
