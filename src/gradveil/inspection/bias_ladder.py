"""Biases that climb in even steps. Robbing the Fed (Fowl et al., ICLR 2022) cuts a scalar's range into bins with them.

The statistic is the mean ratio of neighboring gaps, the smaller over the larger: 2 ln 2 - 1 = 0.386 for numbers drawn
independently from any smooth density, near 1 for the quantiles of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from torch import Tensor, nn

from gradveil.inspection.finding import Measurement
from gradveil.inspection.weight_rows import row_layers

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
