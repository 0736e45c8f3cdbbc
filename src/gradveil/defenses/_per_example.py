"""Gradients of single examples: what clipping and masking example by example are written on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import vmap

from gradveil.core.client import BATCH_NORMS
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch, GradientFn, Params, Update

TOGETHER = 16  # examples at once: each has a gradient of the model's size


def mean_of_each(
    compute: GradientFn, change: Callable[..., Update], params: Params, batch: Batch, *own: Tensor
) -> dict[str, Tensor]:
    """The mean over a batch of what `change` makes of each example's gradient; `own` is [example, ...], given with it.

    Losses are means over the examples, so with nothing changed this is the gradient of the batch, up to rounding.
    """

    def one(image: Tensor, label: Tensor, *own: Tensor) -> dict[str, Tensor]:
        return dict(change(compute(params, Batch(image.unsqueeze(0), label.unsqueeze(0))), *own))

    # other defenses inside `compute` may draw: each example its own numbers
    each, count = vmap(one, randomness="different"), batch.images.shape[0]
    parts = [each(*(x[at : at + TOGETHER] for x in (*batch, *own))) for at in range(0, count, TOGETHER)]
    return {name: torch.stack([part[name].sum(0) for part in parts]).sum(0) / count for name in parts[0]}


def length(gradient: Mapping[str, Tensor]) -> Tensor:
    """Of all tensors together. Never quite zero, where the root has no slope."""
    squares = torch.stack([g.square().sum() for g in gradient.values()]).sum()
    return squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()


def clip_length(gradient: Mapping[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Scaled down to length `clip` where it is longer (eq. 17 of ROG)."""
    scale = (length(gradient) / clip).clamp_min(1.0)
    return {name: g / scale for name, g in gradient.items()}


def layer_of(parameter: str) -> str:
    """
    >>> layer_of("layer1.0.conv1.weight")
    'layer1.0.conv1'
    """
    return parameter.rpartition(".")[0]


def refuse_batch_statistics(defense: str, model: nn.Module) -> None:
    """An example that is normalized by the others of its batch has no gradient of its own."""
    for name, layer in model.named_modules():
        if isinstance(layer, BATCH_NORMS) and layer.running_mean is None:
            raise ConfigError(
                f"{defense}: layer {name!r} normalizes by the batch, so examples have no gradients of their own, "
                "use `batchnorm = eval` or a model without BatchNorm"
            )
