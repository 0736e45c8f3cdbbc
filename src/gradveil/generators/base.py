"""What an attack asks of a generator: a latent goes in, a picture comes out."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Generator(Protocol):
    """Frozen, without draws or changes in place, so that `torch.func` can go through it."""

    latent: tuple[int, ...]
    size: tuple[int, int, int]

    def __call__(self, z: Tensor) -> Tensor:
        """Latents [n, *latent] to pictures [n, channel, height, width] in [0, 1]."""
        ...
