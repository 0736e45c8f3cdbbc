"""What a factory asks for, by the names that people give it, filled from the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Shape = tuple[int, int, int]  # channels, height, width
CLASSES = ("num_classes", "n_classes", "nclasses", "nb_classes", "num_labels", "n_labels", "n_class", "num_class")
OUTPUTS = ("out_features", "out_dim", "output_dim", "output_size", "n_outputs", "num_outputs", "outputs")
CHANNELS = ("in_channels", "in_chans", "in_ch", "input_channels", "image_channels", "img_channels")
PLANES = ("channels", "n_channels", "num_channels")
SIDES = ("img_size", "image_size")
OF_PICTURES = (1, 3)  # a default of `channels` that speaks of pictures; 64 is a width


def fill(factory: Callable[..., object], classes: int, shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments for a factory: those that are agreed on (`classes`, `shape`), and those that were recognized by name.

    What the factory has a default for is filled only if that is another number than the data's.
    """
    known = {"classes": classes, "shape": shape}
    parameters = inspect.signature(factory).parameters
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {name: p.default for name, p in parameters.items() if p.kind in kinds}
    agreed = {name: value for name, value in known.items() if name in named}
    filled = _recognize(named, classes, shape)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        agreed = known if not filled else agreed
    return agreed, filled


def _recognize(named: Mapping[str, Any], classes: int, shape: Shape) -> dict[str, Any]:
    channels, height, width = shape
    side = height if height == width else (height, width)
    meant = dict.fromkeys((*CLASSES, *OUTPUTS), classes) | dict.fromkeys((*CHANNELS, *PLANES), channels)
    meant |= dict.fromkeys(SIDES, side)
    return {name: meant[name] for name, default in named.items() if name in meant and _asks(name, default, meant[name])}


def _asks(name: str, default: Any, value: Any) -> bool:
    """Whether nobody has said it yet. The default of an ambiguous name may be a width of the network."""
    if default is inspect.Parameter.empty or default is None:
        return True
    if name in OUTPUTS or (name in PLANES and default not in OF_PICTURES):
        return False
    return bool(default != value)
