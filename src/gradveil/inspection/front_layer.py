"""A linear layer on all pixels in front of convolutions: where planted layers are put, and honest models have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from torch import nn

from gradveil.inspection.activations import Reach
from gradveil.inspection.finding import Measurement

CHECK = "linear layer before convolutions"
WIDEST = 64  # inputs of a layer that still sees a patch and not a picture: 3 channels of 4x4 pixels are 48
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def front_layer(model: nn.Module, reaches: Iterable[Reach] | None) -> Iterator[Measurement]:
    """In the order of use where pictures came through, else in the order of definition."""
    layers = [(r.name, r.module) for r in reaches] if reaches is not None else _rows_defined(model)
    for place, (name, layer) in enumerate(layers):
        if _is_convolution(layer):
            return
        inputs = _seen_at_once(layer)
        later = any(_is_convolution(after) for _, after in layers[place + 1 :])
        if later and inputs > 0:
            yield _measure(name, inputs)


def _rows_defined(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(f"{n}.weight", m) for n, m in model.named_modules() if isinstance(m, (nn.Linear, *CONVOLUTIONS))]


def _is_convolution(layer: nn.Module) -> bool:
    """One that slides; a kernel of more than a hundred pixels is a linear layer in disguise."""
    return isinstance(layer, CONVOLUTIONS) and prod(layer.kernel_size) <= 121


def _seen_at_once(layer: nn.Module) -> int:
    return layer.weight[0].numel() if isinstance(layer, (nn.Linear, *CONVOLUTIONS)) else 0


def _measure(name: str, inputs: int) -> Measurement:
    return Measurement(
        check=CHECK,
        layer=name,
        statistic=float(inputs),
        threshold=float(WIDEST),
        found=inputs > WIDEST,
        sentence=f"a layer sees {inputs} numbers at once and stands before the first convolution: "
        "the gradient of a neuron there is a picture",
    )
