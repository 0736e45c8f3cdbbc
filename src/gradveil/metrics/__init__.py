"""The catalogue of metrics: name -> builder of a `Metric` from keyword arguments."""

from collections.abc import Callable

from gradveil.core.metric import Metric
from gradveil.metrics.align import Aligned, align
from gradveil.metrics.fsim import fsim
from gradveil.metrics.jaccard import jaccard
from gradveil.metrics.labels import labels
from gradveil.metrics.lpips import lpips, lpips_vgg
from gradveil.metrics.ms_ssim import ms_ssim
from gradveil.metrics.psnr import psnr
from gradveil.metrics.retrieval import (
    retrieval,
    retrieval_detail,
    retrieval_features,
    retrieval_features_top5,
    retrieval_top5,
)
from gradveil.metrics.ssim import ssim

METRICS: dict[str, Callable[..., Metric]] = {
    "psnr": psnr,
    "ssim": ssim,
    "ms-ssim": ms_ssim,
    "fsim": fsim,
    "lpips": lpips,
    "lpips-vgg": lpips_vgg,
    "jaccard": jaccard,
    "retrieval": retrieval,
    "retrieval-top5": retrieval_top5,
    "retrieval-detail": retrieval_detail,
    "retrieval-features": retrieval_features,
    "retrieval-features-top5": retrieval_features_top5,
    "labels": labels,
}

__all__ = ["METRICS", "Aligned", "Metric", "align"]
