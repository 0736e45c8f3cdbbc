"""Multi-scale structural similarity (Wang et al., Multi-scale Structural Similarity for ..., Asilomar 2003)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images
from gradveil.metrics.ssim import WINDOW, likenesses

PAPER = "https://doi.org/10.1109/ACSSC.2003.1292216"
SHARES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # the paper's exponents, the finest scale first
MS_SSIM = Facts(name="ms-ssim", label="MS-SSIM")


@MS_SSIM.builds
def ms_ssim() -> Metric:
    """Structural similarity over up to five scales, each half as large as the one before; mean over channels."""
    return MS_SSIM.metric(multi_scale_similarity)


def multi_scale_similarity(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """Product over scales of contrast and structure, on the coarsest of luminance too, each to its share.

    Differs: a picture has as many scales as leave 11 pixels (five from 176 on, two at 32), and the shares of fewer than
    five are scaled to the sum of 1; contrast that is negative, whose power is no number, counts as 0.
    """
    lead, shape = got.shape[:-3], got.shape[-3:]
    x, y = (images.double().reshape(-1, 1, *shape[1:]) for images in (got, truth))
    shares = shares_of(scales(min(shape[1:])))
    total = torch.ones(len(x), dtype=x.dtype, device=x.device)
    for number, share in enumerate(shares):
        luminance, contrast = likenesses(x, y)
        alike = luminance * contrast if number == len(shares) - 1 else contrast
        total = total * alike.mean((1, 2, 3)).clamp_min(0) ** share
        x, y = (F.avg_pool2d(images, 2) if min(shape[1:]) > 1 else images for images in (x, y))
    return total.reshape(*lead, shape[0]).mean(-1)


def shares_of(count: int) -> list[float]:
    total = sum(SHARES[:count]) if count < len(SHARES) else 1.0
    return [share / total for share in SHARES[:count]]


def scales(side: int) -> int:
    """As many halvings as leave a whole window.

    >>> [scales(side) for side in (8, 28, 32, 64, 128, 224)]
    [1, 2, 2, 3, 4, 5]
    """
    return next((count for count in range(len(SHARES), 1, -1) if side // 2 ** (count - 1) >= WINDOW), 1)
