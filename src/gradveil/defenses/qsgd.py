"""QSGD (Alistarh et al., 2017; equations 6 and 7 of ROG, Yue et al., 2023): random rounding that is right on average.

Differs from QSGD's text, which takes the length of the bucket for its range: the maximum is the default, as in ROG's
code, since with the length and few levels nearly all numbers of a large tensor become zero; `norm = "l2"` is the text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Law, Round, count
from gradveil.core.paper import Paper
from gradveil.core.seeds import uniform
from gradveil.core.strength import Strength
from gradveil.core.types import Update
from gradveil.defenses._quantization import (
    FEWER_BITS,
    Cells,
    Norm,
    check_quantizer,
    doubt,
    from_buckets,
    levels_of,
    range_of,
    step_of,
    to_buckets,
)

PAPER = Paper(
    "QSGD: Communication-Efficient SGD via Gradient Quantization", "Alistarh et al.", 2017, "arXiv:1610.02132"
)
MOST_LEVELS = 2**15 - 1
IMPOSSIBLE = 1e-4  # the least probability of a level, for what rounding moves beyond its neighbors
WHOLE = 0.01  # of a step: how near to a whole number of steps what was sent is
ROUNDING = 6**-0.5  # standard deviation in steps: a whole one to either side, the farther the less likely


@dataclass(frozen=True, kw_only=True)
class Qsgd(Defense):
    """Rounds every number up or down at random to one of 2 s + 1 values; s = `levels` or 2^(bits-1) - 1.

    The range is the `norm` of each `bucket` of that many numbers (0: of the tensor). `room` belongs to the attacker who
    knows: how many times the `cells.doubt` about a number it may be off what was sent; 0: the attacker ignores it.
    """

    strength: ClassVar[Strength | None] = FEWER_BITS

    bits: int = 3
    levels: int | None = None
    norm: Norm = "max"
    bucket: int = 0
    room: float = 1.0

    def __post_init__(self) -> None:
        check_quantizer("qsgd", self.bits, self.norm, self.room)
        if self.levels is not None and not 1 <= self.levels <= MOST_LEVELS:
            raise ConfigError(f"qsgd: levels = {self.levels} is out of range, take 1 to {MOST_LEVELS}")
        if self.levels is not None and self.bits != 3:
            raise ConfigError("qsgd: levels and bits say the same thing, give one of them")
        if self.bucket < 0:
            raise ConfigError(f"qsgd: bucket = {self.bucket} is out of range, take a number >= 0 (0: the whole tensor)")

    @property
    def scale_group(self) -> int:
        return self.bucket

    @property
    def highest(self) -> int:
        return levels_of(self.bits) if self.levels is None else self.levels

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.quantize(u, uniform(u.shape, rng, u)) for name, u in update.items()}

    def quantize(self, u: Tensor, chance: Tensor) -> Tensor:
        buckets = to_buckets(u, self.bucket)
        step = range_of(buckets, self.norm) / self.highest
        at = (buckets.abs() / step.clamp_min(torch.finfo(u.dtype).tiny)).clamp_max(self.highest)
        level = at.floor() + (to_buckets(chance, self.bucket) < at.frac())
        return from_buckets(step * buckets.sign() * level + 0.0, u)  # -0.0 would tell the sign of what was rounded away

    def quiet(self) -> Defense:
        return Defense()

    def law(self, round: Round) -> Law | None:
        return Rounding(self) if round.members == 1 else None

    def surrogate(self, seen: Update) -> Defense:
        """What was sent is right on average, and off by the doubt: as far the dummy may be off as well."""
        if self.room == 0:
            return Defense()
        room = {name: self.room * self.doubts(u) for name, u in seen.items()}
        low = {name: u - room[name] for name, u in seen.items()}
        high = {name: u + room[name] for name, u in seen.items()}
        return Cells(seen=seen, low=low, high=high)

    def doubts(self, u: Tensor) -> Tensor:
        buckets = to_buckets(u, self.bucket)
        size = buckets.abs().mean(1, keepdim=True)  # of the true numbers on average, since the mean is kept
        off = doubt(step_of(buckets, self.highest, self.norm), ROUNDING, size)
        return from_buckets(off.expand_as(buckets), u)


@dataclass(frozen=True)
class Rounding(Law):
    """Every number goes to one of the two levels beside it, the nearer the likelier, and no farther.

    What was sent must also be whole steps of what the candidate makes: the step is told by the range of its numbers.
    """

    defense: Qsgd
    reach: ClassVar[float | None] = math.inf  # a step that is off by a little moves every number
    exact: bool = True
    pairwise: bool = True

    def score(self, seen: Update, made: Update) -> Tensor:
        columns = [self._score_candidate(seen, {name: u[at] for name, u in made.items()}) for at in range(count(made))]
        return torch.stack(columns, 1)

    def _score_candidate(self, seen: Update, made: Update) -> Tensor:
        """[trial]"""
        total = torch.zeros(count(seen), dtype=torch.float64)
        for name, u in made.items():
            buckets = to_buckets(u, self.defense.bucket)
            step = (range_of(buckets, self.defense.norm) / self.defense.highest).clamp_min(torch.finfo(u.dtype).tiny)
            at = (buckets / step).clamp(-self.defense.highest, self.defense.highest)
            for trial, sent in enumerate(seen[name]):
                level = to_buckets(sent, self.defense.bucket) / step
                off = (level - level.round()) / WHOLE
                near = (1 - (level - at).abs()).clamp_min(IMPOSSIBLE)
                total[trial] += (near.log() - off.square() / 2).sum(dtype=torch.float64).cpu()
        return total

    def fits(self, seen: Update, made: Update) -> bool:
        """No number beyond the two levels beside it, but for rounding."""
        for name, u in made.items():
            buckets, sent = to_buckets(u[0], self.defense.bucket), to_buckets(seen[name][0], self.defense.bucket)
            step = range_of(buckets, self.defense.norm) / self.defense.highest
            clipped = buckets.clamp(-self.defense.highest * step, self.defense.highest * step)
            if bool(((sent - clipped).abs() > (1 + WHOLE) * step).any()):
                return False
        return True
