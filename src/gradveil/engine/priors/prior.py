"""Priors: what a picture should look like. All take and return a leading trial axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from gradveil.core.client import BATCH_NORMS, in_client_mode, newest_share
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.types import Images

Weight = float | tuple[float, ...]  # several weights are dealt out over the restarts, one each in turn
Penalty = Callable[[Images, Images], Tensor]  # (pictures as optimized, pictures as fed) -> [trial]


@runtime_checkable
class Prior(Protocol):
    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        """`seen` has one client per trial; `restarts` numbers the trials of one client."""
        ...


def dealt(weight: Weight, restarts: Tensor, like: Tensor) -> Tensor:
    """The weight of each trial."""
    weights = torch.as_tensor(weight, dtype=like.dtype).flatten()
    return weights[restarts.cpu() % len(weights)].to(like.device)


def _like(seen: Observation) -> Tensor:
    return next(iter(seen.update.values()))


@dataclass(frozen=True)
class TotalVariation:
    """Mean absolute difference of neighbors, down plus right; `isotropic` takes the length of the two.

    Pairs that would cross the border are left out: padding it with zeros, as others do, costs about 1 dB.
    """

    weight: Weight = 1e-4
    isotropic: bool = False

    def __post_init__(self) -> None:
        weights = self.weight if isinstance(self.weight, tuple) else (self.weight,)
        if not weights or not all(0 <= weight < math.inf for weight in weights):
            raise ConfigError(f"tv = {self.weight} is out of range, take numbers >= 0")

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        weight = dealt(self.weight, restarts, _like(seen))
        return lambda pixels, fed: weight * self.of(pixels)

    def of(self, pixels: Images) -> Tensor:
        down = pixels[..., 1:, :] - pixels[..., :-1, :]
        right = pixels[..., :, 1:] - pixels[..., :, :-1]
        if not self.isotropic:
            return _mean(down.abs()) + _mean(right.abs())
        both = down[..., :, :-1].square() + right[..., :-1, :].square()
        return _mean((both + 1e-12).sqrt())  # a corner at zero has no slope: rounded off


def _mean(differences: Tensor) -> Tensor:
    """Of each trial; a picture one pixel wide or high has no neighbors to differ from."""
    each = differences.flatten(1)
    return each.mean(1) if each.shape[1] else each.sum(1)


@dataclass(frozen=True)
class Norm:
    """Mean square of the pictures as optimized."""

    weight: Weight = 1e-6

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        weight = dealt(self.weight, restarts, _like(seen))
        return lambda pixels, fed: weight * pixels.square().flatten(1).mean(1)


@dataclass(frozen=True)
class Box:
    """Mean square of what lies outside [0, 1]: a soft wall for unboxed spaces."""

    weight: Weight = 1.0

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        weight = dealt(self.weight, restarts, _like(seen))
        return lambda pixels, fed: weight * (fed - fed.clamp(0, 1)).square().flatten(1).mean(1)


@dataclass(frozen=True)
class BatchNormStatistics:
    """Distance of each normalization layer's batch mean and variance from the target (Yin et al., 2021, eq. 10).

    The target is what the client sent (`batch-shared`, its own batch recovered from the moving average) or else the
    running statistics of the model. Needs a model that keeps running statistics.
    """

    weight: Weight = 1e-3
    optional: bool = False  # left out, with a note, where the model keeps none

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        weight = dealt(self.weight, restarts, _like(seen))
        model = in_client_mode(seen.model, seen.training).requires_grad_(False)
        targets = target_statistics(seen)
        inputs = partial(_layer_inputs, model)
        if seen.training.batchnorm != "eval":  # every trial is normalized by its own batch
            inputs = torch.func.vmap(inputs)

        def penalty(_pixels: Images, fed: Images) -> Tensor:
            if seen.training.batchnorm != "eval":
                return weight * _mismatch(inputs(fed), targets)
            each = {name: x.unflatten(0, fed.shape[:2]) for name, x in inputs(fed.flatten(0, 1)).items()}
            return weight * _mismatch(each, targets)

        return penalty


def applicable(priors: Sequence[Prior], seen: Observation) -> tuple[tuple[Prior, ...], tuple[str, ...]]:
    """The priors that this model has something for, and a note for each that it has not."""
    usable = tuple(p for p in priors if not (isinstance(p, BatchNormStatistics) and p.optional) or keeping(seen.model))
    if len(usable) == len(priors):
        return usable, ()
    return usable, ("the model keeps no normalization statistics: the prior on them is left out",)


def keeping(model: torch.nn.Module) -> dict[str, torch.nn.modules.batchnorm._NormBase]:
    """The layers that keep running statistics."""
    return {n: m for n, m in model.named_modules() if isinstance(m, BATCH_NORMS) and m.running_mean is not None}


def target_statistics(seen: Observation) -> dict[str, Tensor]:
    """The batch statistics that the attacker aims at, [trial or 1, channel] by `<layer>.mean` and `<layer>.var`."""
    targets: dict[str, Tensor] = {}
    for name, layer in keeping(seen.model).items():
        for kind, running in (("mean", layer.running_mean), ("var", layer.running_var)):
            assert running is not None
            if seen.statistics is None:
                targets[f"{name}.{kind}"] = running[None]
            else:
                shares = [newest_share(layer, k) for k in range(seen.training.steps)]
                keep = math.prod(1 - share for share in shares)  # exact for one step, an average for more
                sent = seen.statistics[f"{name}.{kind}"]
                targets[f"{name}.{kind}"] = running[None] if keep == 1 else (sent - keep * running) / (1 - keep)
    return targets


def _layer_inputs(model: torch.nn.Module, images: Tensor) -> dict[str, Tensor]:
    """What enters each normalization layer, [example, channel, position]."""
    inputs: dict[str, Tensor] = {}
    hooks = []
    for name, layer in model.named_modules():
        if isinstance(layer, BATCH_NORMS):

            def keep(_layer: torch.nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
                inputs[name] = args[0].unsqueeze(-1).flatten(2)

            hooks.append(layer.register_forward_pre_hook(keep))
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs


def _mismatch(inputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    total: Tensor | None = None
    for name, x in inputs.items():
        mean, var = x.mean((1, 3)), x.var((1, 3), unbiased=x.shape[1] * x.shape[3] > 1)
        here = (mean - targets[f"{name}.mean"]).norm(dim=1) + (var - targets[f"{name}.var"]).norm(dim=1)
        total = here if total is None else total + here
    assert total is not None, "the model has no normalization layer with running statistics"
    return total
