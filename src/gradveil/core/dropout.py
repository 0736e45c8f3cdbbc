"""Dropout with masks of a stream of the client's own, so that whoever has the stream draws the same ones."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.nn.functional as F
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode

from gradveil.core.seeds import Seed, uniform

CHANNELS = (F.dropout1d, F.dropout2d, F.dropout3d)  # whole channels of [example, channel, ...] at once


class DrawnMasks(TorchFunctionMode):
    """While it is entered, dropout is on, as a layer and as a function, and takes its masks from this stream.

    The model is in evaluation mode all the while, so that nothing else in it changes.
    """

    def __init__(self, rng: Generator) -> None:
        super().__init__()
        self.rng = rng

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.dropout or func in CHANNELS:
            return self.drop(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def drop(self, func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if p == 0:
            return input
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:])) if func in CHANNELS else input.shape
        return input * (uniform(shape, self.rng, input) >= p) / (1 - p) if p < 1 else input * 0


def masks_of(seed: Seed | None, step: int) -> AbstractContextManager[Any]:
    """The masks of one local step; without a seed dropout is off."""
    return nullcontext() if seed is None else DrawnMasks(seed.at("dropout", step).rng())
