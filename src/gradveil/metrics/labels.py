"""Label recovery: how many of a client's labels the attacker worked out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Facts, Metric

LABELS = Facts(name="labels", label="Labels", about="labels")


@LABELS.builds
def labels() -> Metric:
    """Share of a client's labels that the attack inferred correctly, in any order."""
    return LABELS.metric(lambda got, truth: labels_right(got, truth).unsqueeze(-1).expand(truth.shape[:2]))


def labels_right(
    got: Float[Tensor, "client guess label"], truth: Float[Tensor, "client example label"]
) -> Float[Tensor, " client"]:
    """The share of a batch's labels that the attacker worked out; the order within a batch does not count."""
    guessed, true = got.detach().float().cpu().sum(1), truth.float().cpu().sum(1)
    most = torch.maximum(guessed.sum(-1), true.sum(-1)).clamp_min(1)  # a label too many is as wrong as one too few
    return torch.minimum(guessed, true).sum(-1) / most
