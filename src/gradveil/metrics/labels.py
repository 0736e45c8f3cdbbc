"""Label recovery: how many of a client's labels the attacker worked out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Metric


def labels() -> Metric:
    """Share of a client's labels that the attack inferred correctly, in any order."""
    return Metric(
        name="labels",
        score=lambda got, truth: labels_right(got, truth).unsqueeze(-1).expand(truth.shape[:2]),
        more_is_leakier=True,
        unit="",
        summary="Share of the client's labels that the attack worked out, as a multiset; 1 where it was told them.",
        about="labels",
    )


def labels_right(
    got: Float[Tensor, "client guess label"], truth: Float[Tensor, "client example label"]
) -> Float[Tensor, " client"]:
    """The share of a batch's labels that the attacker worked out; the order within a batch does not count."""
    found, there = got.detach().float().cpu().sum(1), truth.float().cpu().sum(1)
    most = torch.maximum(found.sum(-1), there.sum(-1)).clamp_min(1)  # a label too many is as wrong as one too few
    return torch.minimum(found, there).sum(-1) / most
