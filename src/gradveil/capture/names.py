"""A capture under its model's own names: wrappers such as DataParallel put theirs before all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from gradveil.capture.format import Capture
from gradveil.models.prefix import match_names, strip_prefixes


def without_prefixes(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """As a model that nothing is wrapped around names them."""
    prefix = strip_prefixes(weights)
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}


def rename_for(capture: Capture, model: nn.Module) -> tuple[Capture, str]:
    """The capture in the names of the model, and what to say of it; as it is where the names fit already."""
    own, note = match_names(list(capture.weights), list(model.state_dict()))
    if not note:
        return capture, ""
    theirs, mine = strip_prefixes(list(capture.weights)), strip_prefixes(list(model.state_dict()))

    def rename(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Statistics may have short names, which no list of weights has."""
        return {own.get(name, mine + name.removeprefix(theirs)): tensor for name, tensor in tensors.items()}

    renamed = replace(
        capture,
        weights={own[name]: tensor for name, tensor in capture.weights.items() if name in own},
        updates={client: rename(update) for client, update in capture.updates.items()},
        statistics={client: rename(back) for client, back in capture.statistics.items()},
    )
    return renamed, note.replace("in the file", "in the capture")
