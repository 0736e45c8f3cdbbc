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
    return LABELS.metric(score_labels)


def score_labels(got: Tensor, truth: Tensor) -> Tensor:
    """[client, example]: of labels the share of the client's, in any order; of masks the share of pixels, in order."""
    if truth.dim() > 3:
        return pixels_right(got, truth)
    return labels_right(got, truth).unsqueeze(-1).expand(truth.shape[:2])


def pixels_right(got: Tensor, truth: Tensor) -> Tensor:
    """The share of a mask's pixels whose likeliest class, or whose every class, the attacker worked out."""
    got, truth = got.detach().float().cpu(), truth.float().cpu()
    one = got.shape[2] > 1 and bool(((truth.sum(2) - 1).abs() < 1e-4).all())
    right = got.argmax(2) == truth.argmax(2) if one else (got > 0.5) == (truth > 0.5)
    return right.float().flatten(2).mean(2)


def labels_right(
    got: Float[Tensor, "client guess label"], truth: Float[Tensor, "client example label"]
) -> Float[Tensor, " client"]:
    """The share of a batch's labels that the attacker worked out; the order within a batch does not count."""
    guessed, true = got.detach().float().cpu().sum(1), truth.float().cpu().sum(1)
    most = torch.maximum(guessed.sum(-1), true.sum(-1)).clamp_min(1)  # a label too many is as wrong as one too few
    return torch.minimum(guessed, true).sum(-1) / most
