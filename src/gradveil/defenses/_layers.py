"""Linear layers of a model: which one a defense means, and what enters it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from gradveil.core.errors import ConfigError, unknown


def linear_layer(defense: str, model: nn.Module, name: str = "") -> str:
    """The linear layer of that name, or the last one where none is named."""
    names = [n for n, layer in model.named_modules() if n and isinstance(layer, nn.Linear)]
    if not names:
        raise ConfigError(f"{defense}: the model has no linear layer to defend, choose another defense")
    if name and name not in names:
        raise unknown("layer", name, names, where=f"{defense}: layer")
    return name or names[-1]


@contextmanager
def input_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    """What enters the layer while the model runs."""
    entered: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _layer, inputs: entered.append(inputs[0]))
    try:
        yield entered
    finally:
        hook.remove()


@contextmanager
def output_of(layer: nn.Module) -> Iterator[list[Tensor]]:
    """What leaves the layer while the model runs."""
    left: list[Tensor] = []

    def keep(_layer: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        left.append(output)

    hook = layer.register_forward_hook(keep)
    try:
        yield left
    finally:
        hook.remove()
