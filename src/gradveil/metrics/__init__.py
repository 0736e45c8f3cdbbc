"""The catalogue of metrics: name -> builder of a `Metric` from keyword arguments."""

from collections.abc import Callable

from gradveil.metrics.align import Aligned, align
from gradveil.metrics.base import Metric
from gradveil.metrics.lpips import lpips
from gradveil.metrics.psnr import psnr
from gradveil.metrics.retrieval import retrieval
from gradveil.metrics.ssim import ssim

METRICS: dict[str, Callable[..., Metric]] = {
    "psnr": psnr,
    "ssim": ssim,
    "lpips": lpips,
    "retrieval": retrieval,
}

__all__ = ["METRICS", "Aligned", "Metric", "align"]
