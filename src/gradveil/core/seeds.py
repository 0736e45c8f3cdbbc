"""Randomness as an argument: a stream is named by what it is for, so nobody else can disturb it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class Seed:
    """A number and a path of purposes. `at` goes one purpose further, `rng` opens the stream.

    >>> Seed(0).at("start", "client-3", 1) == Seed(0).at("start").at("client-3", 1)
    True
    """

    value: int = 0
    key: tuple[str | int, ...] = ()

    def at(self, *key: str | int) -> Seed:
        return Seed(self.value, (*self.key, *key))

    def number(self) -> int:
        """A stable 63-bit number: blake2, since `hash()` is salted for strings."""
        text = "\x1f".join([str(self.value), *map(repr, self.key)])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def rng(self) -> Generator:
        """A fresh CPU generator: drawn on the CPU and moved, numbers are the same on every device."""
        return torch.Generator().manual_seed(self.number())


def normal(shape: Sequence[int], rng: Generator, like: Tensor) -> Tensor:
    return torch.randn(tuple(shape), generator=rng, device=rng.device).to(like)


def uniform(shape: Sequence[int], rng: Generator, like: Tensor) -> Tensor:
    return torch.rand(tuple(shape), generator=rng, device=rng.device).to(like)
