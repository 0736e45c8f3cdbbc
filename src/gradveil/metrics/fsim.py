"""Feature similarity (Zhang et al., FSIM: A Feature Similarity Index for Image Quality Assessment, IEEE TIP 2011).

ATS drops policies that distort pictures beyond recognition by it. Constants are the paper's, for levels 0 to 255.
Differs: where no pixel of either picture has a feature (flat pictures), all pixels count alike.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images
from gradveil.metrics.phase_congruency import phase_congruency

PAPER = "https://doi.org/10.1109/TIP.2011.2109730"
FSIM = Facts(name="fsim", label="FSIM")
AT_ONCE = 64  # pictures; bounds the memory, not the result
PHASE, EDGE, CHROMA = 0.85, 160.0, 200.0  # T1, T2, and T3 = T4
COLOR_SHARE = 0.03  # lambda
LARGE = 256  # pixels of the shorter side that are looked at
YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))
SCHARR = ((3.0, 0.0, -3.0), (10.0, 0.0, -10.0), (3.0, 0.0, -3.0))

Pictures = Float[Tensor, "image channel height width"]


@FSIM.builds
def fsim() -> Metric:
    """Feature similarity: phase congruency and gradients, with color where there is any (FSIMc)."""
    return FSIM.metric(score_fsim)


@torch.no_grad()
def score_fsim(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """FSIM of gray pictures, FSIMc of color ones, in float64."""
    lead, shape = got.shape[:-3], got.shape[-3:]
    pairs = zip(*(images.reshape(-1, *shape).split(AT_ONCE) for images in (got, truth)), strict=True)
    return torch.cat([feature_similarity(a, b) for a, b in pairs]).reshape(lead)


def feature_similarity(a: Pictures, b: Pictures) -> Float[Tensor, " image"]:
    """FSIM of gray pictures and FSIMc of color ones, all in [0, 1]: 1 for the same picture, symmetric, above 0."""
    if a.shape != b.shape or a.shape[1] not in (1, 3):
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ConfigError(f"must be two batches of the same shape with 1 or 3 channels, got {got}", key="fsim")
    first, second = channels(a), channels(b)
    phases = phase_congruency(first[:, 0]), phase_congruency(second[:, 0])
    edges = edge(first[:, :1]), edge(second[:, :1])
    alike = similar(*phases, PHASE) * similar(*edges, EDGE)
    if a.shape[1] == 3:
        alike = alike * color(first[:, 1:], second[:, 1:])
    weight = torch.maximum(*phases)
    weight = torch.where(weight.sum((1, 2), keepdim=True) > 0, weight, 1.0)
    return (alike * weight).sum((1, 2)) / weight.sum((1, 2))


def channels(pictures: Pictures) -> Tensor:
    """Luminance and, of color pictures, two chromatic channels, from 0 to 255 and reduced if large. In float64."""
    x = 255 * pictures.double()
    if x.shape[1] == 3:
        x = torch.einsum("dc,nchw->ndhw", torch.tensor(YIQ, dtype=x.dtype, device=x.device), x)
    return reduce_size(x, max(1, math.floor(min(x.shape[2:]) / LARGE + 0.5)))


def reduce_size(x: Tensor, by: int) -> Tensor:
    """Every `by`-th pixel of the average over `by` x `by`, with black around the picture."""
    before, after = (by - 1) // 2, by // 2
    return F.avg_pool2d(F.pad(x, (before, after, before, after)), by)


def similar(x: Tensor, y: Tensor, constant: float) -> Tensor:
    return (2 * x * y + constant) / (x.square() + y.square() + constant)


def edge(gray: Tensor) -> Tensor:
    """Length of the Scharr gradient, black around the picture: [image, 1, y, x] -> [image, y, x]."""
    kernel = torch.tensor(SCHARR, dtype=gray.dtype, device=gray.device) / 16
    across = F.conv2d(gray, torch.stack([kernel, kernel.T])[:, None], padding=1)
    return across.square().sum(1).sqrt()


def color(first: Tensor, second: Tensor) -> Tensor:
    """(S_I S_Q)^lambda; the product can be negative, and then the paper's code takes the power's real part."""
    product = similar(first, second, CHROMA).prod(1)
    power = product.abs() ** COLOR_SHARE
    return torch.where(product < 0, math.cos(math.pi * COLOR_SHARE) * power, power)
