"""Normalization belongs to the model: everything outside speaks of pixels in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError


class Normalize(nn.Module):
    """(x - mean) / std per channel, the first layer of a model."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - self.mean) / self.std


class NormalizesInput(nn.Module):
    """A model of another class that normalizes first. It has that model's names: the constants are in no state dict."""

    input_mean: Tensor
    input_std: Tensor

    def forward(self, images: Tensor) -> Any:
        return super().forward((images - self.input_mean) / self.input_std)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        base = type(self).__bases__[1]
        return _make_empty, (base,), self.__dict__


@cache
def _make_class(base: type[nn.Module]) -> type[nn.Module]:
    return type(base.__name__, (NormalizesInput, base), {"__module__": base.__module__})


def _make_empty(base: type[nn.Module]) -> nn.Module:
    """For copies and pickles, which fill it themselves."""
    found = _make_class(base)
    return found.__new__(found)


def normalize_input(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """The same model, which now takes pixels in [0, 1] and normalizes them; its weights keep their names.

    A hook would be lost where a model is traced, and a wrapper would put its own name before every weight.
    """
    if normalizes(model):
        raise ConfigError("the model normalizes its pictures itself already, leave it out", key="normalize")
    model.register_buffer("input_mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
    model.register_buffer("input_std", torch.tensor(std).view(-1, 1, 1), persistent=False)
    model.__class__ = _make_class(type(model))
    return model


def normalizes(model: nn.Module) -> bool:
    """Whether one of our layers normalizes; what a model of the user's own does inside is not known."""
    return _find(model) is not None


def constants_of(model: nn.Module, channels: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation with which the model normalizes first; 0 and 1 where it has no such layer."""
    return _find(model) or (torch.zeros(channels), torch.ones(channels))


def _find(model: nn.Module) -> tuple[Tensor, Tensor] | None:
    for layer in model.modules():
        if isinstance(layer, Normalize):
            return layer.mean.flatten(), layer.std.flatten()
        if isinstance(layer, NormalizesInput):
            return layer.input_mean.flatten(), layer.input_std.flatten()
    return None
