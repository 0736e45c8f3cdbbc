"""The catalogue of metrics: name -> builder of a `Metric` from keyword arguments, which also has its `facts`."""

from gradveil.core.metric import FED, Builder, Facts, Metric
from gradveil.metrics.align import Aligned, align
from gradveil.metrics.fsim import fsim
from gradveil.metrics.jaccard import jaccard
from gradveil.metrics.labels import labels
from gradveil.metrics.lpips import lpips, lpips_vgg
from gradveil.metrics.mask_iou import mask_iou
from gradveil.metrics.ms_ssim import ms_ssim
from gradveil.metrics.psnr import psnr
from gradveil.metrics.retrieval import (
    retrieval,
    retrieval_detail,
    retrieval_features,
    retrieval_features_top5,
    retrieval_rank,
    retrieval_top5,
)
from gradveil.metrics.ssim import ssim
from gradveil.metrics.symmetric import psnr_symmetric, retrieval_symmetric

METRICS: dict[str, Builder] = {
    "psnr": psnr,
    "psnr-symmetric": psnr_symmetric,
    "ssim": ssim,
    "ms-ssim": ms_ssim,
    "fsim": fsim,
    "lpips": lpips,
    "lpips-vgg": lpips_vgg,
    "jaccard": jaccard,
    "retrieval": retrieval,
    "retrieval-top5": retrieval_top5,
    "retrieval-rank": retrieval_rank,
    "retrieval-symmetric": retrieval_symmetric,
    "retrieval-detail": retrieval_detail,
    "retrieval-features": retrieval_features,
    "retrieval-features-top5": retrieval_features_top5,
    "labels": labels,
    "mask-iou": mask_iou,
}


def facts_of(name: str) -> Facts:
    """How to read the scores of a metric, by the name of a score. Of one that nobody knows, more leaks more."""
    row = METRICS.get(name.removesuffix(FED))
    return Facts(name=name, label=name) if row is None else row.facts


__all__ = ["METRICS", "Aligned", "Facts", "Metric", "align", "facts_of"]
