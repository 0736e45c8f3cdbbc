"""Which layers of a model an attack matches: all, or those that say most of pictures, or that few defenses touch."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.engine.distance import Distance, Unmatched
from gradveil.engine.labels import last_linear

Part = Literal["all", "body", "early"]


def narrow(distance: Distance, part: Part, seen: Observation) -> Distance:
    """The distance over all layers, over all but the last linear one, or over the first half of them."""
    if part == "all" or isinstance(distance, Unmatched):
        return distance
    if part == "body":
        return replace(distance, without=(f"{_head(seen)}.*",))  # type: ignore[type-var]
    return replace(distance, only=_early(seen))  # type: ignore[type-var]


def _head(seen: Observation) -> str:
    try:
        return last_linear(seen.model, seen.classes)
    except NotApplicableError:
        reason = f"the model has no linear layer with {seen.classes} outputs to leave out, take invertgrad"
        raise NotApplicableError(reason, key="headless") from None


def _early(seen: Observation) -> tuple[str, ...]:
    """The parameters of the first half of the layers that send any, in the model's own order."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name, _ in seen.model.named_parameters()))
    layers = [layer for layer in layers if any(name.rpartition(".")[0] == layer for name in seen.update)]
    if len(layers) < 2:
        raise NotApplicableError("the model has one layer only, match `all` of it", key="part")
    chosen = set(layers[: min((len(layers) + 1) // 2, len(layers) - 1)])
    return tuple(name for name in seen.update if name.rpartition(".")[0] in chosen)
