"""Features: what chosen layers of a frozen network put out. LODA leaves open before or after the activation: before."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.models.start import Shape

LAYERS = re.compile(r"(all|(?:first|last)([1-9]\d{0,2}))(\+linear)?")


class Layers(NamedTuple):
    """Which convolutional layers, in the order in which they run, and whether the linear ones as well.

    >>> Layers.parse("last5+linear")
    Layers(side='last', count=5, linear=True)
    """

    side: str  # all, first or last
    count: int | None
    linear: bool

    @classmethod
    def parse(cls, text: str) -> Layers:
        found = LAYERS.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"layers: {text!r} names no layers, write firstN, lastN or all, with +linear for linear layers too"
            )
        count = int(found[2]) if found[2] else None
        return cls(found[1].rstrip("0123456789"), count, found[3] is not None)

    def of(self, convolutions: Sequence[nn.Module], linear: Sequence[nn.Module]) -> list[nn.Module]:
        if self.count is not None and self.count > len(convolutions):
            raise ConfigError(
                f"layers: {self.side}{self.count} asks for {self.count} convolutional layers, the extractor has "
                f"{len(convolutions)}, ask for fewer or for all"
            )
        some = slice(-self.count, None) if self.side == "last" and self.count else slice(self.count)
        chosen = [*convolutions[some], *(linear if self.linear else ())]
        if not chosen:
            raise ConfigError("layers: the extractor has no convolutional layer, take another model")
        return chosen


class Enough(Exception):
    """The last chosen layer has run: what comes after it is not needed."""


class Features:
    """The outputs of the chosen layers for a batch of pictures. Convolutions of shortcuts count as layers.

    The model is its own from then on: it is frozen, and its layers report to it, to each thread what that thread ran.
    """

    def __init__(self, model: nn.Module, layers: str, shape: Shape) -> None:
        self.model = model.eval().requires_grad_(False)
        like = next(model.parameters())
        ran = in_order(model, torch.zeros(1, *shape, device=like.device, dtype=like.dtype))
        convolutions = [layer for layer in ran if isinstance(layer, nn.Conv2d)]
        chosen = Layers.parse(layers).of(convolutions, [layer for layer in ran if isinstance(layer, nn.Linear)])
        self.layers = [layer for layer in ran if any(layer is one for one in chosen)]
        self.here = threading.local()
        for layer in self.layers:
            layer.register_forward_hook(self._keep)

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        self.here.seen = seen
        with suppress(Enough):
            self.model(pictures)
        return seen

    def _keep(self, layer: nn.Module, entering: tuple[Tensor, ...], leaving: Tensor) -> None:
        self.here.seen.append(leaving)
        if len(self.here.seen) == len(self.layers):
            raise Enough


def in_order(model: nn.Module, pictures: Tensor) -> list[nn.Module]:
    """The convolutional and linear layers as they run."""
    ran: list[nn.Module] = []
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(lambda layer, *_: ran.append(layer)) for layer in layers]
    try:
        with torch.no_grad():
            model(pictures)
    finally:
        for hook in hooks:
            hook.remove()
    return ran
