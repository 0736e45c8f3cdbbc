"""How a run is computed: speed and memory, never the meaning of a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

Backend = Literal["auto", "loop", "vmap", "sweep"]
Precision = Literal["float32", "tf32", "float64"]
ON_A_CPU, ON_A_GPU = 32, 256


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Device, precision, back end and chunk (trials at once; None measures the memory and decides).

    `tf32` is the one setting that may move a number, by rounding: it is asked for by name and every record says so.
    """

    device: str = "cpu"
    precision: Precision = "float32"
    backend: Backend = "auto"
    chunk: int | None = None
    graphs: bool = True  # capture the attack's step as a CUDA graph where the device has them
    workers: int = 0  # processes, one thread each; 0: this process, with all of its threads
    ray: str = ""  # shards on a Ray cluster instead: its address, `auto`, or `local` for one of our own
    limit: float | None = None  # seconds that a shard may take in a worker before it counts as hanging

    @property
    def shard(self) -> int:
        """Clients that are attacked at once and written when they are done: what a crash can cost."""
        return ON_A_GPU if self.device.startswith("cuda") else ON_A_CPU

    @property
    def spread(self) -> bool:
        """Whether shards leave this process; each then has one thread."""
        return bool(self.workers or self.ray)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "float64" else torch.float32

    @contextmanager
    def active(self) -> Iterator[None]:
        """Matrix products in TF32 inside, if asked for; the caller's settings outside."""
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]


def pick_device(name: str) -> str:
    """`auto` is the GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name
