"""Neurons that all rise and fall together over the client's pictures: they measure one scalar with many thresholds.

This is Robbing the Fed (Fowl et al., ICLR 2022) seen by what it does. Noise on the rows hides it in the weights long
before it hides it here, where natural pictures follow the scalar and not the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gradveil.inspection.activations import Reach
from gradveil.inspection.finding import Measurement

CHECK = "one scalar"
FEWEST = 16
TIERS = ((0.98, 0.15), (0.9, 0.6))  # correlation, share of the neurons; honest layers reached 0.06 and 0.29


def one_scalar(reaches: Iterable[Reach]) -> Iterator[Measurement]:
    """Only layers that see the whole picture at once; the same signal twice counts once."""
    for reach in reaches:
        signal = torch.unique(reach.signal, dim=1)
        if reach.places == 1 and signal.shape[1] >= FEWEST:
            correlated = correlations(signal).abs()
            for least, share in TIERS:
                yield _measure(reach.name, correlated, least, share)


def correlations(signal: Tensor) -> Tensor:
    """Of every two neurons over the pictures; constant neurons correlate with none."""
    unit = torch.nn.functional.normalize(signal - signal.mean(0), dim=0)
    return unit.T @ unit


def _measure(name: str, correlated: Tensor, least: float, threshold: float) -> Measurement:
    neurons = len(correlated)
    share = (correlated >= least).sum(1).max().item() / neurons
    return Measurement(
        check=CHECK,
        layer=name,
        statistic=share,
        threshold=threshold,
        found=share >= threshold,
        sentence=f"{share:.0%} of {neurons} neurons rise and fall together over the pictures (correlation {least} or "
        "more up to the sign): they measure one scalar with many thresholds",
        details={"neurons": float(neurons), "correlation": least},
    )
