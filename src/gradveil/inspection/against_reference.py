"""What changed since a previous or agreed checkpoint, by more than a round of training changes weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from gradveil.inspection.finding import Measurement

ADDED, CHANGED = "layer that the reference lacks", "rows unlike the reference's"
TURNED, GROWN = 0.5, 10.0  # a row that has a smaller cosine with its old self, or is as many times longer or shorter
SHARE = 0.05
FEWEST, SHORTEST = 8, 16  # neurons and inputs


def against_reference(model: nn.Module, reference: nn.Module | Mapping[str, Tensor]) -> Iterator[Measurement]:
    """The reference as a model or as its tensors by name; what the model has lost is no finding."""
    old = reference.state_dict() if isinstance(reference, nn.Module) else reference
    for name, parameter in model.named_parameters():
        before = old.get(name)
        if before is None or before.shape != parameter.shape:
            yield _measure_added(name, tuple(parameter.shape))
        elif parameter.ndim >= 2 and parameter[0].numel() >= SHORTEST and len(parameter) >= FEWEST:
            rows, then = (p.detach().flatten(1).double().cpu() for p in (parameter, before))
            yield _measure_changed(name, share_replaced(rows, then), len(rows))


def share_replaced(rows: Tensor, before: Tensor) -> float:
    """The share of rows that training would hardly have brought there; rows that are or were zero do not count."""
    lengths, then = rows.norm(dim=1), before.norm(dim=1)
    alive = (lengths > 0) & (then > 0)
    cosine = torch.nn.functional.cosine_similarity(rows[alive], before[alive], dim=1)
    growth = (lengths[alive] / then[alive]).log().abs()
    gone = (cosine < TURNED) | (growth > torch.tensor(GROWN).log())
    return gone.double().mean().item() if len(gone) else 0.0


def _measure_added(name: str, shape: tuple[int, ...]) -> Measurement:
    return Measurement(
        check=ADDED,
        layer=name,
        statistic=1.0,
        threshold=0.0,
        found=True,
        sentence=f"the reference has no parameter of this name and shape {shape}",
    )


def _measure_changed(name: str, share: float, neurons: int) -> Measurement:
    return Measurement(
        check=CHANGED,
        layer=name,
        statistic=share,
        threshold=SHARE,
        found=share >= SHARE,
        sentence=f"{share:.0%} of {neurons} rows point elsewhere (cosine below {TURNED}) or are {GROWN:.0f} times as "
        "long or as short as in the reference",
    )
