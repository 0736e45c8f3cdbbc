"""Trials in chunks that fit the memory, measured, and chunks on the cores of a CPU. Neither ever changes a result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradveil.core.compute import Compute
from gradveil.core.threads import threads, wait_for

Part = TypeVar("Part")
Trials = list[tuple[int, int]]

ON_A_GPU = 1024  # trials at once: more gains nothing, the arithmetic is the limit by then
ON_A_CORE = 64  # more no longer fit the cache
HEAVY = 20_000_000  # bytes of a trial above which a core is busy with few of them, and the cache sooner full
SHARE = 0.5  # of what is free: a graph's own pool and the allocator's gaps take the rest


def run(
    attack: Callable[[Trials], Part], trials: Trials, compute: Compute, footprint: Callable[[], int], together: int = 1
) -> list[Part]:
    """All trials, in order. `footprint` measures the bytes of one trial; `together` in a row are never torn apart."""
    if compute.device.startswith("cuda"):
        size = compute.chunk or min(ON_A_GPU, trials_that_fit(footprint(), compute.device))
        return one_after_the_other(attack, trials, whole(size, together), together)
    size, cores = cpu_plan(len(trials), torch.get_num_threads(), compute.chunk, footprint)
    size = whole(size, together)
    pieces = [trials[i : i + size] for i in range(0, len(trials), size)]
    if cores == 1 or len(pieces) == 1:
        return one_after_the_other(attack, trials, size, together)
    return side_by_side(attack, pieces, cores, together)


def whole(size: int, together: int) -> int:
    """A chunk's size without a torn group.

    >>> whole(10, 4), whole(3, 4), whole(7, 1)
    (8, 4, 7)
    """
    return max(together, size - size % together)


def cpu_plan(trials: int, cores: int, chunk: int | None, footprint: Callable[[], int]) -> tuple[int, int]:
    """Trials in a chunk, and chunks side by side, each on one core: two chunks gain twofold where two threads in one
    product gain little. Light trials stay together, since Python itself runs on one core at a time.

    >>> cpu_plan(40, 2, None, lambda: 10**6), cpu_plan(80, 2, None, lambda: 10**6), cpu_plan(8, 2, None, lambda: 10**8)
    ((40, 1), (40, 2), (4, 2))
    """
    if chunk is not None:
        return chunk, cores
    each = footprint()
    most, fewest = (ON_A_CORE // 2, 1) if each > HEAVY else (ON_A_CORE, ON_A_CORE // 2)
    cores = max(1, min(cores, trials // fewest))
    return even(trials, min(most, trials_that_fit(each, "cpu", cores)), cores), cores


def even(trials: int, most: int, cores: int) -> int:
    """Chunks of equal size, as many for each core.

    >>> even(80, 32, 2), even(8, 32, 2), even(65, 32, 2)
    (20, 4, 17)
    """
    rounds = math.ceil(trials / (cores * most))
    return math.ceil(trials / (cores * rounds))


def side_by_side(attack: Callable[[Trials], Part], pieces: list[Trials], cores: int, together: int = 1) -> list[Part]:
    with threads(cores, of_torch=1) as submit:
        waiting = [submit(one_after_the_other, attack, piece, len(piece), together) for piece in pieces]
        return [part for result in waiting for part in wait_for(result)]


def one_after_the_other(attack: Callable[[Trials], Part], trials: Trials, size: int, together: int = 1) -> list[Part]:
    """Out of memory halves the chunk and does that part again from its own start."""
    parts: list[Part] = []
    first = 0
    while first < len(trials):
        try:
            parts.append(attack(trials[first : first + size]))
            first += size
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if size == together or not is_out_of_memory(error):
                raise
            size = whole(min(size, len(trials) - first) // 2, together)
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return parts


def is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def bytes_of(evaluate: Callable[[], Any], device: str) -> int:
    """What one evaluation takes."""
    return gpu_bytes(evaluate) if device.startswith("cuda") else cpu_bytes(evaluate)


def trials_that_fit(each: int, device: str, sharers: int = 1) -> int:
    """How many trials of so many bytes may run at once on each of the sharers."""
    free = torch.cuda.mem_get_info()[0] if device.startswith("cuda") else free_cpu_bytes()
    return max(1, int(SHARE * free / sharers / max(each, 1)))


def free_cpu_bytes() -> int:
    """What the system says; where it does not say (macOS), 4 GiB."""
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return 4 * 2**30
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def gpu_bytes(evaluate: Callable[[], Any]) -> int:
    """The peak above what was there before."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    evaluate()
    return torch.cuda.max_memory_allocated() - before


def cpu_bytes(evaluate: Callable[[], Any]) -> int:
    """Everything that was allocated: above the peak, but a CPU keeps no such account."""
    with _Allocations() as seen:
        evaluate()
    return seen.bytes


class _Allocations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = {x.data_ptr() for x in args if isinstance(x, Tensor)}
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor) and x.data_ptr() not in inputs:  # views take nothing
                self.bytes += x.numel() * x.element_size()
        return out
