"""Structural similarity (Wang et al., Image Quality Assessment: From Error Visibility to ..., IEEE TIP 2004)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images

WINDOW, SIGMA = 11, 1.5
LUMINANCE, CONTRAST = 0.01**2, 0.03**2  # the paper's K1 and K2 at a data range of 1
SSIM = Facts(name="ssim", label="SSIM")


@SSIM.builds
def ssim() -> Metric:
    """Structural similarity (SSIM): 11 x 11 Gaussian window, mean over channels; 1 is an exact match."""
    return SSIM.metric(structural_similarity)


def structural_similarity(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """Mean similarity of local means, variances and covariance over all windows that lie inside the picture.

    Differs: pictures under 11 pixels get the largest odd window that fits, so a 1 x 1 picture compares levels alone.
    """
    lead, shape = got.shape[:-3], got.shape[-3:]
    x, y = (images.double().reshape(-1, 1, *shape[1:]) for images in (got, truth))
    luminance, contrast = likenesses(x, y)
    return (luminance * contrast).mean((-3, -2, -1)).reshape(*lead, shape[0]).mean(-1)


def likenesses(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of the means, and of contrast and structure, in every whole window of single-channel pictures.

    Give float64: the variances are small differences of large numbers.
    """
    mean_x, mean_y, xx, yy, xy = (_blur(moment) for moment in (x, y, x * x, y * y, x * y))
    var_x, var_y, cov = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + LUMINANCE) / (mean_x**2 + mean_y**2 + LUMINANCE)
    contrast = (2 * cov + CONTRAST) / (var_x + var_y + CONTRAST)
    return luminance, contrast


def _blur(images: Tensor) -> Tensor:
    """Separable Gaussian average of every whole window of single-channel pictures."""
    side = min(WINDOW, *images.shape[-2:])
    side -= 1 - side % 2
    offset = torch.arange(side, device=images.device, dtype=images.dtype) - side // 2
    weight = torch.softmax(-(offset**2) / (2 * SIGMA**2), 0)
    return F.conv2d(F.conv2d(images, weight.view(1, 1, -1, 1)), weight.view(1, 1, 1, -1))
