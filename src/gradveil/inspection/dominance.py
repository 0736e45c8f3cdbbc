"""Neurons whose gradient is nearly one picture's: what is unmixed in the sum can be read off it.

Pictures are first brought to the same total in the layer: in a trained model one misjudged picture outweighs all
others everywhere, which is no structure of the neurons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from gradveil.inspection.activations import Reach
from gradveil.inspection.finding import Measurement

CHECK = "dominated gradients"
NEARLY = 0.9  # of a neuron's gradient
FEWEST, THRESHOLD = 16, 0.4  # neurons with a gradient; share of them


def dominance(reaches: Iterable[Reach]) -> Iterator[Measurement]:
    for reach in reaches:
        shares = largest_shares(reach.strength)
        if len(shares) >= FEWEST:
            yield _measure(reach.name, (shares >= NEARLY).double().mean().item(), len(reach.strength), len(shares))


def largest_shares(strength: Tensor) -> Tensor:
    """Of every neuron with a gradient, the share of the picture that has most of it."""
    totals = strength.sum(1, keepdim=True)
    leveled = strength[totals.flatten() > 0] / totals[totals.flatten() > 0]
    alive = leveled.sum(0) > 0
    return leveled[:, alive].amax(0) / leveled[:, alive].sum(0) if len(leveled) else strength.new_zeros(0)


def _measure(name: str, share: float, pictures: int, neurons: int) -> Measurement:
    return Measurement(
        check=CHECK,
        layer=name,
        statistic=share,
        threshold=THRESHOLD,
        found=share >= THRESHOLD,
        sentence=f"in {share:.0%} of {neurons} neurons one picture of {pictures} makes up {NEARLY:.0%} of the gradient",
        details={"pictures": float(pictures), "neurons": float(neurons)},
    )
