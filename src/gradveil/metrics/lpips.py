"""LPIPS (Zhang et al., The Unreasonable Effectiveness of Deep Features as a Perceptual Metric, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images
from gradveil.metrics.backbones import ALEXNET, VGG16, Backbone
from gradveil.metrics.weights import read_weights

PAPER = "https://arxiv.org/abs/1801.03924"
NUMBERS_AT_ONCE = 64 * 3 * 128 * 128  # of the pictures looked at together; bounds the memory, not the result
LPIPS = Facts(name="lpips", label="LPIPS", more_is_leakier=False, perceptual=True)
LPIPS_VGG = Facts(name="lpips-vgg", label="LPIPS (VGG)", more_is_leakier=False, perceptual=True)


@LPIPS.builds
def lpips(*, weights: str | Path, resize: int | None = 128) -> Metric:
    """LPIPS, a perceptual distance, with AlexNet; lower leaks more. Pictures smaller than `resize` are enlarged.

    At 32 pixels as they are, LPIPS hardly tells two animals apart; None leaves them so.
    """
    return _metric(LPIPS, ALEXNET, Path(weights), resize)


@LPIPS_VGG.builds
def lpips_vgg(*, weights_vgg: str | Path, resize: int | None = 128) -> Metric:
    """LPIPS, a perceptual distance, with VGG16; lower leaks more. Pictures smaller than `resize` are enlarged."""
    return _metric(LPIPS_VGG, VGG16, Path(weights_vgg), resize)


def _metric(facts: Facts, backbone: Backbone, path: Path, resize: int | None) -> Metric:
    tensors, source = read_weights(path, backbone.shapes(), backbone.published, f"{backbone.name}'s LPIPS v0.1 weights")
    return facts.metric(lambda got, truth: perceptual_distance(got, truth, tensors, resize, backbone), source)


@torch.no_grad()
def perceptual_distance(
    got: Images,
    truth: Images,
    arrays: Mapping[str, Tensor],
    resize: int | None = None,
    backbone: Backbone = ALEXNET,
) -> Float[Tensor, "*client example"]:
    """LPIPS v0.1 of pictures in [0, 1]. One channel is repeated to three; `resize` works on the shorter side."""
    lead, shape = got.shape[:-3], got.shape[-3:]
    here = {name: value.to(got) for name, value in arrays.items()}
    at_once = max(1, NUMBERS_AT_ONCE // (3 * max(resize or 0, shape[1]) * max(resize or 0, shape[2])))
    pairs = zip(*(images.reshape(-1, *shape).split(at_once) for images in (got, truth)), strict=True)
    each = [_distance(prepare(a, resize, backbone), prepare(b, resize, backbone), here, backbone) for a, b in pairs]
    return torch.cat(each).reshape(lead)


def prepare(images: Tensor, resize: int | None, backbone: Backbone) -> Tensor:
    """In color and large enough for the network."""
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    height, width = images.shape[-2:]
    shorter = min(height, width)
    if resize is not None and shorter < resize:
        size = [round(side * resize / shorter) for side in (height, width)]
        images = F.interpolate(images, size, mode="bilinear", align_corners=False)
    elif shorter < backbone.smallest:
        raise ConfigError(
            f"pictures of {height} x {width} are too small for {backbone.name}, set `resize = 64`", key="metrics.lpips"
        )
    return images


def _distance(x: Tensor, y: Tensor, arrays: Mapping[str, Tensor], backbone: Backbone) -> Tensor:
    """Squared difference of unit-length features, weighted by channel, averaged over places, summed over layers."""
    total = x.new_zeros(len(x))
    layers = zip(backbone.features(x, arrays), backbone.features(y, arrays), strict=True)
    for number, (p, q) in enumerate(layers):
        gap = (_unit(p) - _unit(q)).square()
        total = total + torch.einsum("nchw,c->nhw", gap, arrays[f"lin{number}"]).mean((1, 2))
    return total


def _unit(features: Tensor) -> Tensor:
    return features / (features.square().sum(1, keepdim=True).sqrt() + 1e-10)
