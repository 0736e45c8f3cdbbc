"""A defense on a difference of weights as NVFlare sends it: what came out of the training minus what went in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, GradveilError
from gradveil.core.seeds import Seed
from gradveil.models.buffers import is_statistic

STAGES = ("model", "data", "batch", "gradient")  # those that a filter cannot reach


class FilterError(GradveilError):
    """An update that would have left the client without the defense. NVFlare sends an error in its place."""


def check_reach(defense: Defense) -> Defense:
    """A filter sees what is sent and nothing before it."""
    if acts := [stage for stage in STAGES if defense.acts_at(stage)]:
        raise ConfigError(
            f"acts on the {acts[0]}, which a filter never sees; choose one that acts on the update, such as prune, "
            "topk, percentile, svt or local-dp",
            key="defense",
        )
    return defense


def defend_difference(
    defense: Defense, difference: Mapping[str, Any], seed: Seed, trainable: Collection[str] | None = None
) -> dict[str, Any]:
    """The difference that is sent instead, as arrays or tensors of the kinds that came.

    difference: weights after the training minus those before it, by name; numpy arrays or torch tensors
    trainable: names of the parameters; None: all floating-point arrays but running statistics
    """
    tensors = {name: _tensor(name, value) for name, value in difference.items()}
    names = [n for n, t in tensors.items() if (n in trainable if trainable is not None else _is_parameter(n, t))]
    if not names:
        raise FilterError("filter: the result holds no parameters, nothing is sent")
    if odd := [name for name in names if not bool(tensors[name].isfinite().all())]:
        raise FilterError(f"filter: {odd[0]} has numbers that are not finite, nothing is sent")
    sent = defense.update({name: -tensors[name] for name in names}, seed.rng())
    if missing := sorted(set(names) - set(sent)):
        raise FilterError(f"filter: the defense left out {missing[0]}, nothing is sent")
    return {name: _like(-sent[name], value) if name in sent else value for name, value in difference.items()}


def _is_parameter(name: str, tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not is_statistic(name)


def _tensor(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach().clone()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise FilterError(f"filter: {name} is no array of numbers (encrypted?), nothing is sent; filter before that")
    return torch.from_numpy(np.array(array))


def _like(tensor: Tensor, value: Any) -> Any:
    if isinstance(value, Tensor):
        return tensor.to(value)
    return tensor.numpy().astype(np.asarray(value).dtype, copy=False)
