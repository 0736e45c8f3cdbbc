"""Trials in chunks that fit the memory. A chunk changes speed and memory, never a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from gradveil.compute import Compute
from gradveil.server import Observation

Part = TypeVar("Part")
Trials = list[tuple[int, int]]

AT_MOST = {"cpu": 64, "cuda": 1024}  # more at once gains nothing: the arithmetic is the limit by then


def run(attack: Callable[[Trials], Part], trials: Trials, seen: Observation, compute: Compute) -> list[Part]:
    """All trials, chunk by chunk; out of memory halves the chunk and does that part again from its own start."""
    size = compute.chunk or AT_MOST["cuda" if compute.device.startswith("cuda") else "cpu"]
    parts, first = [], 0
    while first < len(trials):
        try:
            parts.append(attack(trials[first : first + size]))
            first += size
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            size = max(1, min(size, len(trials) - first) // 2)
            if compute.device.startswith("cuda"):
                torch.cuda.empty_cache()
    return parts


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
