"""LPIPS (Zhang et al., The Unreasonable Effectiveness of Deep Features as a Perceptual Metric, CVPR 2018)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.errors import ConfigError
from gradveil.metrics.base import Metric
from gradveil.types import Images

SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of pictures in [-1, 1], from the authors' code
CONVOLUTIONS = ((0, 4, 2), (3, 1, 2), (6, 1, 1), (8, 1, 1), (10, 1, 1))  # torchvision's index, stride, padding
CHANNELS = (64, 192, 384, 256, 256)
POOLED_BEFORE = (1, 2)
SMALLEST = 31  # pixels that leave one after AlexNet's second pooling
AT_ONCE = 64  # pictures; bounds the memory, not the result


def lpips(*, weights: str | Path, resize: int | None = 128) -> Metric:
    """Perceptual distance, AlexNet v0.1; `weights` is an .npz; pictures smaller than `resize` are enlarged to it.

    At 32 pixels as they are, LPIPS hardly tells two animals apart; None leaves them so.
    """
    arrays = _read(Path(weights))
    return Metric(
        name="lpips",
        score=lambda got, truth: perceptual_distance(got, truth, arrays, resize),
        more_is_leakier=False,
        unit="",
        summary="Learned perceptual distance (AlexNet, v0.1); lower means more was leaked.",
    )


@torch.no_grad()
def perceptual_distance(
    got: Images, truth: Images, arrays: Mapping[str, Tensor], resize: int | None = None
) -> Float[Tensor, "*client example"]:
    """LPIPS v0.1 of pictures in [0, 1]. One channel is repeated to three; `resize` works on the shorter side."""
    lead, shape = got.shape[:-3], got.shape[-3:]
    here = {name: value.to(got) for name, value in arrays.items()}
    pairs = zip(*(images.reshape(-1, *shape).split(AT_ONCE) for images in (got, truth)), strict=True)
    return torch.cat([_distance(_prepare(a, resize), _prepare(b, resize), here) for a, b in pairs]).reshape(lead)


def _prepare(images: Tensor, resize: int | None) -> Tensor:
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    height, width = images.shape[-2:]
    shorter = min(height, width)
    if resize is not None and shorter < resize:
        size = [round(side * resize / shorter) for side in (height, width)]
        images = F.interpolate(images, size, mode="bilinear", align_corners=False)
    elif shorter < SMALLEST:
        raise ConfigError(f"metrics.lpips: pictures of {height} x {width} are too small for AlexNet, set resize = 64")
    return images


def _distance(x: Tensor, y: Tensor, arrays: Mapping[str, Tensor]) -> Tensor:
    """Squared difference of unit-length features, weighted by channel, averaged over places, summed over layers."""
    total = x.new_zeros(len(x))
    for layer, (p, q) in enumerate(zip(_features(x, arrays), _features(y, arrays), strict=True)):
        gap = (_unit(p) - _unit(q)).square()
        total = total + torch.einsum("nchw,c->nhw", gap, arrays[f"lin{layer}"]).mean((1, 2))
    return total


def _features(images: Tensor, arrays: Mapping[str, Tensor]) -> Iterator[Tensor]:
    shift, scale = (images.new_tensor(values).view(1, 3, 1, 1) for values in (SHIFT, SCALE))
    x = (2 * images - 1 - shift) / scale
    for layer, (index, stride, padding) in enumerate(CONVOLUTIONS):
        if layer in POOLED_BEFORE:
            x = F.max_pool2d(x, 3, 2)
        weight, bias = arrays[f"features.{index}.weight"], arrays[f"features.{index}.bias"]
        x = F.conv2d(x, weight, bias, stride=stride, padding=padding).relu()
        yield x


def _unit(features: Tensor) -> Tensor:
    return features / (features.square().sum(1, keepdim=True).sqrt() + 1e-10)


def _read(path: Path) -> dict[str, Tensor]:
    """The arrays of an .npz, checked by name and size; never unpickled."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: torch.from_numpy(file[name].astype(np.float32)) for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise ConfigError(f"{path}: cannot be read as an .npz of LPIPS weights, give another file ({error})") from error
    for layer, (index, _, _) in enumerate(CONVOLUTIONS):
        for name in (f"features.{index}.weight", f"features.{index}.bias", f"lin{layer}"):
            expected = (CHANNELS[layer], (3, *CHANNELS)[layer]) if name.endswith("weight") else (CHANNELS[layer],)
            if name not in arrays or arrays[name].shape[:2] != expected or not arrays[name].isfinite().all():
                raise ConfigError(
                    f"{path}: {name} is missing, not finite or has another size, give AlexNet's LPIPS v0.1 weights"
                )
    return arrays
