"""Neurons that one picture of a batch has for itself: its gradient there is the picture (Boenisch et al., 2023).

Neurons in the order of their thresholds may also share pictures and differ by one alone: then the difference of their
gradients is that picture (Fowl et al., 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gradveil.inspection.activations import Reach
from gradveil.inspection.finding import Measurement

CHECK = "single-picture neurons"
FEWEST = 16  # neurons that tell pictures apart
THRESHOLDS = {"alone": 0.4, "stepwise": 0.6}  # shares of them
WORDS = {"alone": "fire for exactly one picture", "stepwise": "differ from the next threshold by exactly one picture"}


def single_sample(reaches: Iterable[Reach]) -> Iterator[Measurement]:
    for reach in reaches:
        active = reach.strength > 0
        for kind, sets in (("alone", active), ("stepwise", _steps(reach, active))):
            if sets is not None and len(used := _count_used(sets)) >= FEWEST:
                yield _measure(reach.name, kind, used, len(sets))


def _count_used(sets: Tensor) -> Tensor:
    """How many pictures each neuron has, of the neurons that have some but not all."""
    counts = sets.sum(0)
    return counts[(counts > 0) & (counts < len(sets))]


def _steps(reach: Reach, active: Tensor) -> Tensor | None:
    """Which pictures a neuron has and the next one has not, in the order of the biases for rows of one length."""
    bias, weight = getattr(reach.module, "bias", None), getattr(reach.module, "weight", None)
    if not isinstance(bias, Tensor) or not isinstance(weight, Tensor) or len(bias) != active.shape[1]:
        return None
    lengths = weight.detach().flatten(1).norm(dim=1).clamp_min(torch.finfo(weight.dtype).tiny)
    ordered = active[:, (bias.detach() / lengths).cpu().argsort()]
    return ordered[:, 1:] != ordered[:, :-1]


def _measure(name: str, kind: str, counts: Tensor, pictures: int) -> Measurement:
    share = (counts == 1).double().mean().item()
    return Measurement(
        check=CHECK,
        layer=name,
        statistic=share,
        threshold=THRESHOLDS[kind],
        found=share >= THRESHOLDS[kind],
        sentence=f"{share:.0%} of {len(counts)} neurons {WORDS[kind]} of {pictures}, "
        "so that the gradient shows it unmixed",
        details={"pictures": float(pictures), "neurons": float(len(counts))},
    )
