"""Quantization: numbers are sent as whole steps, and each step names the cell that the number came from.

Equation 6 of ROG (Yue et al., 2023): Q(g) = kappa / s * |g|_p * sign(g) * level, level in 0..s, so 2 s + 1 values.
`uniform` and `qsgd` choose the level; both take the range and what the attacker makes of it from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.strength import Strength
from gradveil.core.types import Update

Norm = Literal["max", "l2"]
BITS = (2, 16)
FEWER_BITS = Strength("bits", (16, 12, 8, 6, 5, 4, 3, 2))


def levels_of(bits: int) -> int:
    """s, so that the 2 s + 1 values fit the bits: 3 bits have s = 3."""
    return 2 ** (bits - 1) - 1


def check_quantizer(name: str, bits: int, norm: str, room: float) -> None:
    if not BITS[0] <= bits <= BITS[1]:
        raise ConfigError(f"{name}: bits = {bits} is out of range, take {BITS[0]} to {BITS[1]} (for one bit, use sign)")
    if norm not in ("max", "l2"):
        raise ConfigError(f"{name}: norm = {norm!r} is unknown, take 'max' or 'l2'")
    if not 0 <= room < math.inf:
        raise ConfigError(f"{name}: room = {room} is out of range, take a number >= 0")


def to_buckets(tensor: Tensor, size: int) -> Tensor:
    """[bucket, number], the last bucket filled up with zeros; 0: the whole tensor is one bucket."""
    flat = tensor.flatten()
    size = size or max(flat.numel(), 1)
    return F.pad(flat, (0, -flat.numel() % size)).view(-1, size)


def from_buckets(buckets: Tensor, like: Tensor) -> Tensor:
    return buckets.flatten()[: like.numel()].view_as(like)


def range_of(buckets: Tensor, norm: Norm) -> Tensor:
    """[bucket, 1]"""
    if norm == "max":
        return buckets.abs().amax(1, keepdim=True)
    return buckets.square().sum(1, keepdim=True).sqrt()


def step_of(buckets: Tensor, levels: int, norm: Norm) -> Tensor:
    """The step of every bucket, read off what was sent: [bucket, 1].

    The largest magnitude is sent as the highest level where the range is the maximum. Where it is the length, the
    smallest magnitude sent is a step or several: cells are then too wide rather than wrong, and without bounds if all
    that was sent is zero.
    """
    size = buckets.abs()
    if norm == "max":
        return size.amax(1, keepdim=True) / levels
    return size.masked_fill(size == 0, torch.inf).amin(1, keepdim=True)


def doubt(step: Tensor, rounding: float, size: Tensor) -> Tensor:
    """How far a number is expected from what was sent for it, a standard deviation: [bucket, 1].

    That of the rounding alone, `rounding` steps, where numbers spread over many cells; that of the numbers themselves,
    Laplacian of mean magnitude `size`, where nearly all of them fall into the cell of zero, as in deep models.
    """
    return 1 / torch.hypot(1 / (rounding * step), 1 / (math.sqrt(2) * size))


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells(Defense):
    """Compares the dummy's update with the nearest one that may well have been sent as this, not with what was sent.

    The nearest is found number by number, in cells that reach from `low` to `high`: anything inside is as good. A
    distance is always taken to `seen`, so the dummy is turned along with its target. Cosine and squared distance then
    see exactly the two.
    """

    seen: Mapping[str, Tensor]
    low: Mapping[str, Tensor]
    high: Mapping[str, Tensor]

    def update(self, update: Update, rng: Generator) -> Update:
        return turn_toward(update, {name: self.target(name, u) for name, u in update.items()}, self.seen)

    def target(self, name: str, u: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(u, self.low[name]), self.high[name])


def turn_toward(update: Update, source: Update, goal: Update) -> dict[str, Tensor]:
    """The update under the rotation and scaling that take `source` to `goal` and leave alone what is across to both."""
    names = list(update)
    tiny = torch.finfo(update[names[0]].dtype).tiny ** 0.5
    own, target = (dot(x, x, names).sqrt().clamp_min(tiny) for x in (source, goal))
    start = {name: source[name] / own for name in names}
    end = {name: goal[name] / target for name in names}
    along = dot(update, start, names)
    both = (along + dot(update, end, names)) / (1 + dot(start, end, names)).clamp_min(1e-3)
    longer = target / own
    return {n: longer * (update[n] - both * (start[n] + end[n]) + 2 * along * end[n]) for n in names}


def dot(one: Update, other: Update, names: list[str]) -> Tensor:
    return torch.stack([(one[name] * other[name]).sum() for name in names]).sum()
