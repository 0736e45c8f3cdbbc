"""Trials in chunks that fit the memory, and chunks on the cores of a CPU. Neither ever changes a result."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from gradveil.compute import Compute

Part = TypeVar("Part")
Trials = list[tuple[int, int]]

ON_A_CORE = 32  # trials at once: more no longer fit the cache
ON_A_GPU = 1024  # more at once gains nothing: the arithmetic is the limit by then


def run(
    attack: Callable[[Trials], Part], trials: Trials, compute: Compute, measure: Callable[[int], int]
) -> list[Part]:
    """All trials, in order. A CPU runs as many chunks side by side as torch has threads, each on one core: small
    products gain nothing from two threads, two chunks gain twofold. `measure` tells how many fit the memory if so
    many share it."""
    if compute.device.startswith("cuda"):
        return one_after_the_other(attack, trials, compute.chunk or min(ON_A_GPU, measure(1)))
    cores = torch.get_num_threads()
    size = compute.chunk or even(len(trials), min(ON_A_CORE, measure(cores)), cores)
    pieces = [trials[i : i + size] for i in range(0, len(trials), size)]
    if cores == 1 or len(pieces) == 1:
        return one_after_the_other(attack, trials, size)
    return side_by_side(attack, pieces, cores)


def even(trials: int, most: int, cores: int) -> int:
    """Chunks of equal size, as many for each core.

    >>> even(80, 32, 2), even(8, 32, 2), even(65, 32, 2)
    (20, 4, 17)
    """
    rounds = math.ceil(trials / (cores * most))
    return math.ceil(trials / (cores * rounds))


def side_by_side(attack: Callable[[Trials], Part], pieces: list[Trials], cores: int) -> list[Part]:
    def on_one_core(piece: Trials) -> list[Part]:
        torch.set_num_threads(1)
        return one_after_the_other(attack, piece, len(piece))

    with ThreadPoolExecutor(cores) as pool:
        contexts = [contextvars.copy_context() for _ in pieces]  # progress listeners travel in the context
        waiting = [
            pool.submit(context.run, on_one_core, piece) for context, piece in zip(contexts, pieces, strict=True)
        ]
        try:
            return [part for result in waiting for part in result.result()]
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(cores)


def one_after_the_other(attack: Callable[[Trials], Part], trials: Trials, size: int) -> list[Part]:
    """Out of memory halves the chunk and does that part again from its own start."""
    parts: list[Part] = []
    first = 0
    while first < len(trials):
        try:
            parts.append(attack(trials[first : first + size]))
            first += size
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            size = max(1, min(size, len(trials) - first) // 2)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return parts


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
