"""Features in bfloat16, which a GPU computes several times as fast; pictures, slopes and steps stay float32.

bfloat16 and not float16: it has the range of float32, so that no feature of any extractor overflows and no slope that
was divided by the number of pixels vanishes. What is lost is told in docs/methods/loda.md.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.obscure import Extract


def in_half(features: Features) -> Extract:
    """The same layers. Weights are rounded once and not in every step; statistics of batches stay as they are."""
    for layer in features.model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.to(torch.bfloat16)

    def extract(pictures: Tensor) -> list[Tensor]:
        with torch.autocast(pictures.device.type, torch.bfloat16):
            return features(pictures)

    return extract
