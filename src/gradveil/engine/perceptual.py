"""LPIPS as something to minimize: the targets' features are computed once, and no step waits for the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from gradveil.metrics.backbones import ALEXNET, SCALE, SHIFT
from gradveil.metrics.lpips import prepare
from gradveil.metrics.weights import read_weights

EPSILON = 1e-20  # under the root, as 1e-10 is beside it in LPIPS: a root has no slope at 0
ENLARGED = 64  # pixels of the shorter side: smaller pictures are enlarged to it, as AlexNet was made for larger ones


@dataclass(frozen=True)
class Perceptual:
    """AlexNet's features where the pictures are; see `gradveil.metrics.lpips`."""

    arrays: Mapping[str, Tensor]
    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, file: str, like: Tensor) -> Perceptual:
        read = read_weights(Path(file), ALEXNET.shapes(), ALEXNET.published, "AlexNet's LPIPS v0.1 weights")
        shift, scale = (like.new_tensor(values).view(1, 3, 1, 1) for values in (SHIFT, SCALE))
        return cls({name: value.to(like) for name, value in read.tensors.items()}, shift, scale)

    def features(self, images: Tensor) -> list[Tensor]:
        """Of unit length at every place, layer by layer."""
        x = (2 * prepare(images, ENLARGED, ALEXNET) - 1 - self.shift) / self.scale
        found: list[Tensor] = []
        for layer in ALEXNET.layers:
            if layer.pool is not None:
                x = F.max_pool2d(x, *layer.pool)
            weight, bias = (self.arrays[f"features.{layer.index}.{part}"] for part in ("weight", "bias"))
            x = F.conv2d(x, weight, bias, stride=layer.stride, padding=layer.padding).relu()
            found.append(x / (x.square().sum(1, keepdim=True) + EPSILON).sqrt())
        return found

    def distance(self, ours: list[Tensor], theirs: list[Tensor]) -> Tensor:
        """Squared difference weighted by channel, averaged over places, summed over layers; one number a picture."""
        each = [
            ((p - q).square() * self.arrays[f"lin{layer}"].view(1, -1, 1, 1)).sum(1).mean((1, 2))
            for layer, (p, q) in enumerate(zip(ours, theirs, strict=True))
        ]
        return sum(each[1:], each[0])
