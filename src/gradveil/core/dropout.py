"""Dropout with masks of a stream of the client's own, so that whoever has the stream draws the same ones."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

from gradveil.core.seeds import Seed, uniform

WHOLE = (F.dropout, F.feature_dropout) if hasattr(F, "feature_dropout") else (F.dropout,)
CHANNELS = (F.dropout1d, F.dropout2d, F.dropout3d)  # whole channels of [example, channel, ...] at once
LAYERS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class DrawnMasks(TorchFunctionMode):
    """While it is entered, dropout that is on takes its masks from this stream."""

    def __init__(self, rng: Generator) -> None:
        super().__init__()
        self.rng = rng

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WHOLE or func in CHANNELS:
            return self.drop(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def drop(self, func: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if func in CHANNELS else x.shape
        return x * (uniform(shape, self.rng, x) >= p) / (1 - p) if p < 1 else x * 0


def turn_on_dropout(model: nn.Module) -> None:
    """Every dropout layer of the model, and no other layer, is in training mode from now on."""
    for layer in model.modules():
        if isinstance(layer, LAYERS):
            layer.train()


def masks_of(seed: Seed | None, step: int) -> AbstractContextManager[Any]:
    """The masks of one local step; without a seed dropout is as the model says."""
    return nullcontext() if seed is None else DrawnMasks(seed.at("dropout", step).rng())
