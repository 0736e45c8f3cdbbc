"""Intersection over union of masks: how much of a private segmentation the attacker worked out."""

from __future__ import annotations

from torch import Tensor

from gradveil.core.metric import Facts, Metric

MASK_IOU = Facts(name="mask-iou", label="Mask IoU", about="labels")


@MASK_IOU.builds
def mask_iou() -> Metric:
    """Intersection over union of the inferred mask with the private one, the mean over the classes in either."""
    return MASK_IOU.metric(intersection_over_union)


def intersection_over_union(got: Tensor, truth: Tensor) -> Tensor:
    """[client, example] of masks [client, example, class, ...]."""
    got, truth = (masks.detach().float().cpu().clamp(0, 1).flatten(3) for masks in (got, truth))
    if truth.dim() == 3:
        got, truth = got.unsqueeze(3), truth.unsqueeze(3)
    both, either = got.minimum(truth).sum(3), got.maximum(truth).sum(3)
    seen = either > 0
    return (both / either.clamp_min(1e-12)).where(seen, 0.0).sum(2) / seen.sum(2).clamp_min(1)
