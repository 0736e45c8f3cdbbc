"""How much memory a trial takes, measured, and how many trials fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SHARE = 0.5  # of what is free: a graph's own pool and the allocator's gaps take the rest


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
