"""Uniform quantization (equations 6 and 7 of ROG, Yue et al., 2023; FedPAQ, Reisizadeh et al., 2020).

Differs from ROG's text, which rounds nowhere in writing: a number goes to its nearest level. Range per tensor and the
maximum for |g|_p as in ROG's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update
from gradveil.defenses._quantization import (
    FEWER_BITS,
    Cells,
    Norm,
    check_quantizer,
    doubt,
    levels_of,
    range_of,
    step_of,
    to_buckets,
)

PAPER = Paper("FedPAQ: A Communication-Efficient Federated Learning Method", "Reisizadeh et al.", 2020, "AISTATS")
ROUNDING = 12**-0.5  # standard deviation in steps: half of one to either side, all alike


@dataclass(frozen=True, kw_only=True)
class Uniform(Defense):
    """Rounds every number to the nearest of 2 s + 1 values in +- `kappa` times its tensor's `norm`, s = 2^(bits-1) - 1.

    Numbers beyond the range go to its end. `room` belongs to the attacker who knows: how many times the `cells.doubt`
    about a number it may be off what was sent; 0: the attacker ignores it.
    """

    strength: ClassVar[Strength | None] = FEWER_BITS

    bits: int = 3
    norm: Norm = "max"
    kappa: float = 1.0
    room: float = 1.0

    def __post_init__(self) -> None:
        check_quantizer("uniform", self.bits, self.norm, self.room)
        if not 0 < self.kappa <= 1:
            raise ConfigError(f"uniform: kappa = {self.kappa} is out of range, take 0 < kappa <= 1")

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.quantize(u) for name, u in update.items()}

    def quantize(self, u: Tensor) -> Tensor:
        levels, numbers = levels_of(self.bits), to_buckets(u, 0)
        step = self.kappa * range_of(numbers, self.norm) / levels
        level = (numbers / step.clamp_min(torch.finfo(u.dtype).tiny)).round().clamp(-levels, levels)
        return (step * level + 0.0).view_as(u)  # -0.0 would tell the sign of what was rounded away

    def surrogate(self, seen: Update) -> Defense:
        """The doubt to either side, and no outer end where numbers beyond the range were moved to its end."""
        if self.room == 0:
            return Defense()
        low, high = {}, {}
        for name, u in seen.items():
            sent = to_buckets(u, 0)
            room = self.room * self.doubts(sent)
            end = (sent.abs() == sent.abs().amax(1, keepdim=True)) & (self.kappa < 1)
            low[name] = (sent - torch.where(end & (sent < 0), torch.inf, room)).view_as(u)
            high[name] = (sent + torch.where(end & (sent > 0), torch.inf, room)).view_as(u)
        return Cells(seen=seen, low=low, high=high)

    def doubts(self, sent: Tensor) -> Tensor:
        """The size of the numbers is told by how many are more than half a step: exp(-step / 2 size) if Laplacian."""
        step = step_of(sent, levels_of(self.bits), self.norm)
        share = (sent != 0).to(sent.dtype).mean(1, keepdim=True).clamp_min(0.5 / max(sent.shape[1], 1))
        return doubt(step, ROUNDING, step / (-2 * share.log()))
