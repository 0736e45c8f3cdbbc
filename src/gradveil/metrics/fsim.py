"""Feature similarity as a metric: what edges and their order keep of a picture (see `gradveil.metrics.fsim_map`)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.core.metric import Metric
from gradveil.core.types import Images
from gradveil.metrics.fsim_map import fsim as feature_similarity

PAPER = "https://doi.org/10.1109/TIP.2011.2109730"
AT_ONCE = 64  # pictures; bounds the memory, not the result


def fsim() -> Metric:
    """Feature similarity: phase congruency and gradients, with color where there is any (FSIMc)."""
    return Metric(
        name="fsim",
        score=of_each,
        more_is_leakier=True,
        unit="",
        summary="Feature similarity, at most 1; higher means more was leaked.",
    )


@torch.no_grad()
def of_each(got: Images, truth: Images) -> Float[Tensor, "*client example"]:
    """FSIM of gray pictures, FSIMc of color ones, in float64."""
    lead, shape = got.shape[:-3], got.shape[-3:]
    pairs = zip(*(images.reshape(-1, *shape).split(AT_ONCE) for images in (got, truth)), strict=True)
    return torch.cat([feature_similarity(a, b) for a, b in pairs]).reshape(lead)
