"""The two networks that LPIPS looks through, as tables: torchvision's names, so that its weights fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of pictures in [-1, 1], from the authors' code


class Convolution(NamedTuple):
    """One convolution with ReLU, and the pooling before it if there is one. `seen`: LPIPS compares its output."""

    index: int  # in torchvision's `features`
    channels: int
    side: int = 3
    stride: int = 1
    padding: int = 1
    pool: tuple[int, int] | None = None  # side, stride
    seen: bool = True


class Backbone(NamedTuple):
    name: str
    layers: tuple[Convolution, ...]
    smallest: int  # pixels of a side that leave one in the last layer
    published: str  # SHA-256 of its weights with those of LPIPS v0.1, see `gradveil.core.hashes.hash_tensors`

    @property
    def compared_layers(self) -> list[Convolution]:
        return [layer for layer in self.layers if layer.seen]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What a file of weights must hold: the convolutions, and a weight for each channel that is compared."""
        found: dict[str, tuple[int, ...]] = {}
        before = 3
        for layer in self.layers:
            found[f"features.{layer.index}.weight"] = (layer.channels, before, layer.side, layer.side)
            found[f"features.{layer.index}.bias"] = (layer.channels,)
            before = layer.channels
        return found | {f"lin{number}": (layer.channels,) for number, layer in enumerate(self.compared_layers)}

    def features(self, images: Tensor, weights: Mapping[str, Tensor]) -> Iterator[Tensor]:
        """What LPIPS compares of color pictures in [0, 1], layer by layer."""
        shift, scale = (images.new_tensor(values).view(1, 3, 1, 1) for values in (SHIFT, SCALE))
        x = (2 * images - 1 - shift) / scale
        for layer in self.layers:
            if layer.pool is not None:
                x = F.max_pool2d(x, *layer.pool)
            kernel, bias = (weights[f"features.{layer.index}.{part}"] for part in ("weight", "bias"))
            x = F.conv2d(x, kernel, bias, stride=layer.stride, padding=layer.padding).relu()
            if layer.seen:
                yield x


ALEXNET = Backbone(
    "AlexNet",
    (
        Convolution(0, 64, side=11, stride=4, padding=2),
        Convolution(3, 192, side=5, padding=2, pool=(3, 2)),
        Convolution(6, 384, pool=(3, 2)),
        Convolution(8, 256),
        Convolution(10, 256),
    ),
    smallest=31,
    published="7c0693c4fa49f7f714f870c372b10fcd2214674397e03b555b38ca100487a955",
)

VGG16 = Backbone(
    "VGG16",
    (
        Convolution(0, 64, seen=False),
        Convolution(2, 64),
        Convolution(5, 128, pool=(2, 2), seen=False),
        Convolution(7, 128),
        Convolution(10, 256, pool=(2, 2), seen=False),
        Convolution(12, 256, seen=False),
        Convolution(14, 256),
        Convolution(17, 512, pool=(2, 2), seen=False),
        Convolution(19, 512, seen=False),
        Convolution(21, 512),
        Convolution(24, 512, pool=(2, 2), seen=False),
        Convolution(26, 512, seen=False),
        Convolution(28, 512),
    ),
    smallest=16,
    published="4200846a21d870c78b6b055cbdce4ee0a4363a4b8c32f416824b22e3af17c5e7",
)
