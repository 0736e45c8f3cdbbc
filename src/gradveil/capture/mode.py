"""Which statistics a captured client normalized by, read off the running statistics that it sent back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gradveil.capture.format import Capture
from gradveil.capture.layout import buffer_of

COUNTER = "num_batches_tracked"


def list_moved(sent: Mapping[str, Tensor], back: Mapping[str, Tensor]) -> list[str]:
    """Running statistics that came back as others, beyond rounding: they were taken in training mode."""
    floats = {buffer_of(name): one for name, one in back.items() if one.is_floating_point()}
    return [name for name, one in floats.items() if not _are_same(one, sent[name])]


def _are_same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other.to(one.dtype), rtol=1e-4, atol=1e-6)


def count_steps(sent: Mapping[str, Tensor], back: Mapping[str, Tensor]) -> int | None:
    """Forward passes in training mode, as the counters of all layers say alike; None: they are not there, or differ."""
    counters = [buffer_of(name) for name in back if name.rpartition(".")[2] == COUNTER]
    steps = {int(back[name]) - int(sent[name]) for name in counters if sent[name].numel() == back[name].numel() == 1}
    return steps.pop() if len(steps) == 1 else None


def describe_mode(capture: Capture, client: str) -> str:
    """In words; empty if nothing came back that tells."""
    back = capture.statistics.get(client, {})
    if not any(one.is_floating_point() for one in back.values()):
        return ""
    if not list_moved(capture.weights, back):
        return "running statistics, which came back as they were sent (eval)"
    steps = count_steps(capture.weights, back)
    passes = f", {steps} forward pass{'' if steps == 1 else 'es'} by its counters" if steps else ""
    return f"each batch's own statistics, since running statistics came back changed (batch-shared{passes})"
