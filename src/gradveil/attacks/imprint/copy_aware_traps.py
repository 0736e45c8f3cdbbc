"""Trap weights for a server that knows what copies are fed beside a picture (OASIS, Jeter et al., 2024).

Of several times as many rows as are asked for, those are kept that read most pictures: in batches of public pictures
and their copies, a row reads the picture that activates it alone. Pictures that a chosen row reads count less for the
next one, so rows are found for pictures of low contrast too, which random rows leave out. Some candidates weigh the
brightness, up or down; they find dark and bright pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool
from torch import Tensor

from gradveil.attacks.imprint.insertion import Place
from gradveil.attacks.imprint.module import Rows
from gradveil.attacks.imprint.traps import bias_at, trap_rows
from gradveil.core.errors import NotApplicableError
from gradveil.core.seeds import Seed

SCALES = (0.96, 0.98, 1.0, 1.02)  # of the candidates' positive halves, as many rows of each as are asked for
READ_BEFORE = 0.1  # what a picture counts after every row that reads it
REHEARSED = 1024  # public pictures in batches; fewer are shuffled into batches again and again
AT_ONCE = 2**25  # numbers of copies that are made together

Copies = Callable[[Tensor], Tensor]  # of pictures, [picture, copy, ...], the picture first


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """Public pictures at a place, what is fed for each of them, and how many come in an update."""

    place: Place
    pictures: Tensor
    copies: Copies
    examples: int
    seed: Seed

    def __post_init__(self) -> None:
        if len(self.pictures) < 2 * self.examples:
            raise NotApplicableError(
                f"separate needs {2 * self.examples} public pictures to rehearse on and there are "
                f"{len(self.pictures)}, leave it out or give more",
                key="cah",
            )

    def levels(self, weight: Tensor) -> Tensor:
        """What the rows measure, [picture, copy, unit]."""
        part = max(1, AT_ONCE // (16 * self.pictures[0].numel()))
        fed = (self.copies(some) for some in self.pictures[:REHEARSED].split(part))
        return torch.cat([(self.place.arrives_as(x.flatten(0, 1)) @ weight.T).unflatten(0, x.shape[:2]) for x in fed])

    def try_rows(self, weight: Tensor) -> tuple[Tensor, Bool[Tensor, "reading unit"]]:
        """Each row's bias, and which pictures it reads: of every batch, those that activate it alone."""
        levels = self.levels(weight)
        bias = bias_at(levels.flatten(0, 1), self.examples * levels.shape[1])
        active = levels + bias > 0
        batches = self.batches(len(levels)).to(active.device)
        times = active.sum(1, dtype=torch.int32)[batches].sum(1)  # [batch, unit]
        reads = active[:, 0][batches] & (times == 1).unsqueeze(1)
        return bias, reads.flatten(0, 1)

    def batches(self, pictures: int) -> Tensor:
        """Places of the pictures, [batch, example]."""
        rng, whole = self.seed.at("batches").rng(), pictures // self.examples * self.examples
        turns = [torch.randperm(pictures, generator=rng)[:whole] for _ in range(-(-REHEARSED // pictures))]
        return torch.cat(turns).view(-1, self.examples)


def separating_rows(units: int, sigma: float, rehearsal: Rehearsal) -> Rows:
    """The best of the candidates. They are drawn a scale at a time, and again: all at once they may not fit."""
    like, pixels = rehearsal.place.mean, prod(rehearsal.place.shape)

    def draw_rows(scale: float) -> Tensor:
        return trap_rows(units, pixels, sigma, scale, rehearsal.seed.at("scale", str(scale)), like)

    tried = [rehearsal.try_rows(draw_rows(scale)) for scale in SCALES]
    chosen = spread(torch.cat([reads for _, reads in tried], 1), units)
    firsts = range(0, units * len(SCALES), units)
    each = [chosen[(chosen >= first) & (chosen < first + units)] - first for first in firsts]
    weight = torch.cat([draw_rows(scale)[some] for scale, some in zip(SCALES, each, strict=True)])
    return Rows(weight=weight, bias=torch.cat([bias[some] for (bias, _), some in zip(tried, each, strict=True)]))


def spread(reads: Bool[Tensor, "reading unit"], count: int) -> Tensor:
    """So many units, each the one that adds most to those before it."""
    table, weight = reads.float(), torch.ones(len(reads), 1, device=reads.device)
    gain, chosen = table.sum(0), []
    for _ in range(count):
        chosen.append(int(gain.argmax()))
        again = reads[:, chosen[-1]]
        gain = gain - (1 - READ_BEFORE) * (weight[again] * table[again]).sum(0)
        gain[chosen[-1]] = -torch.inf
        weight[again] *= READ_BEFORE
    return torch.tensor(chosen, device=reads.device)
