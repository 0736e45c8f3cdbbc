"""How likely an update is, given what the client makes before its last draw.

A defense that draws numbers last says by which law (`Defense.law`), and what it would send without them
(`Defense.quiet`). Whoever has candidates for a picture then knows the best guess there is: the most likely one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from gradveil.core.local_optimizer import impulses
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Update

SAME = 1e-4  # of an update's length: what rounding may change where nothing is drawn
OFF = 0.03  # of an update's length: what rounding may change of signs and levels, at most
CACHED = 2**18  # numbers, 1 MiB
SIGMAS, SLACK = 6.0, 0.02  # how far the strength of noise may be from what its law says


@dataclass(frozen=True, kw_only=True)
class Round:
    """What the size of noise in an update depends on, beside the defense."""

    training: LocalTraining = field(default_factory=LocalTraining)
    examples: int = 1  # pictures of one client in a local step
    members: int = 1  # clients of whose updates the server sees the mean alone

    @property
    def growth(self) -> float:
        """Standard deviation in the update for noise of 1 in the gradient of every local step."""
        return math.sqrt(sum(share**2 for share in impulses(self.training)))


class Law(ABC):
    """`score` is a log-likelihood up to a constant of the trial, so a higher one is a better guess.

    `exact`: whether it is the likelihood itself and not an estimate of it. `reach`: the score of a candidate that is as
    far off as rounding may move it, where no noise hides that; None: it does.
    """

    exact: bool = True
    reach: ClassVar[float | None] = None
    pairwise: bool = False  # whether every trial is held against every candidate number by number, which takes long

    @abstractmethod
    def score(self, seen: Update, made: Update) -> Tensor:
        """Of updates received, each [trial, ...], given those made of candidates, each [candidate, ...]:
        [trial, candidate]"""

    @abstractmethod
    def fits(self, seen: Update, made: Update) -> bool:
        """Whether an update received is as far from what its own picture makes as the law says; both [1, ...]."""

    def mean_of(self, members: int) -> Law | None:
        """The law of a mean over clients that draw independently; None: none is known."""
        return None


@dataclass(frozen=True)
class Same(Law):
    """Nothing is drawn: the update is what the picture makes, but for rounding."""

    reach: ClassVar[float | None] = -((2 * OFF) ** 2) / (2 * SAME**2)

    def score(self, seen: Update, made: Update) -> Tensor:
        distances, lengths = compare_rows(seen, made)
        spread = (SAME**2 * lengths).clamp_min(torch.finfo(torch.float64).tiny)
        return -distances / (2 * spread[:, None])

    def fits(self, seen: Update, made: Update) -> bool:
        return bool(squared_distances(seen, made)[0, 0] <= OFF**2 * energy(seen, made)[0])

    def mean_of(self, members: int) -> Law:
        return self


@dataclass(frozen=True, kw_only=True)
class Normal(Law):
    """Independent normal noise: standard deviation `deviation`, or `relative` times the update's root mean square."""

    deviation: float = 0.0
    relative: float | None = None
    exact: bool = True

    def score(self, seen: Update, made: Update) -> Tensor:
        spread = self._spread(made)
        penalty = numbers(made) * spread.log() / 2 if self.relative is not None else torch.zeros_like(spread)
        return -squared_distances(seen, made) / (2 * spread) - penalty

    def _spread(self, made: Update) -> Tensor:
        """The variance of one number, for each candidate."""
        if self.relative is not None:
            spread = self.relative**2 * energy(made, made) / numbers(made)
        else:
            spread = torch.full((count(made),), self.deviation**2, dtype=torch.float64)
        return spread.clamp_min(torch.finfo(torch.float64).tiny)

    def fits(self, seen: Update, made: Update) -> bool:
        strength = squared_distances(seen, made)[0, 0] / (numbers(made) * self._spread(made)[0])
        return bool((strength - 1).abs() <= SLACK + SIGMAS * math.sqrt(2 / numbers(made)))

    def mean_of(self, members: int) -> Law | None:
        if members == 1:
            return self
        return None if self.relative is not None else replace(self, deviation=self.deviation / math.sqrt(members))


@dataclass(frozen=True, kw_only=True)
class Laplace(Law):
    """Independent Laplacian noise of this scale, or `relative` times the root mean square of the update."""

    scale: float = 0.0
    relative: float | None = None
    exact: bool = True
    pairwise: bool = True

    def score(self, seen: Update, made: Update) -> Tensor:
        scale = self._scale(made)
        return -absolute_distances(seen, made) / scale - numbers(made) * scale.log()

    def _scale(self, made: Update) -> Tensor:
        if self.relative is None:
            return torch.full((count(made),), self.scale, dtype=torch.float64)
        return self.relative * (energy(made, made) / numbers(made)).sqrt().clamp_min(1e-300)

    def fits(self, seen: Update, made: Update) -> bool:
        strength = absolute_distances(seen, made)[0, 0] / (numbers(made) * self._scale(made)[0])
        return bool((strength - 1).abs() <= SLACK + SIGMAS / math.sqrt(numbers(made)))

    def mean_of(self, members: int) -> Law | None:
        """The mean of several is nearly normal, of the same variance."""
        if members == 1:
            return self
        deviation = math.sqrt(2 / members) * self.scale
        return Normal(deviation=deviation, exact=False) if self.relative is None else None


@dataclass(frozen=True)
class Kept(Law):
    """Another law, of which only the numbers that are not zero were sent: those left out tell next to nothing."""

    law: Normal | Laplace
    exact: bool = False
    pairwise: bool = False  # as the other law is

    def score(self, seen: Update, made: Update) -> Tensor:
        rows = [self._score_trial({name: u[trial : trial + 1] for name, u in seen.items()}, made)
                for trial in range(count(seen))]  # fmt: skip
        return torch.cat(rows)

    def _score_trial(self, seen: Update, made: Update) -> Tensor:
        there = {name: u != 0 for name, u in seen.items()}
        return self.law.score(seen, {name: torch.where(there[name], u, seen[name]) for name, u in made.items()})

    def fits(self, seen: Update, made: Update) -> bool:
        """Which numbers are sent depends on their noise: nothing is known of its strength but that there is some."""
        return True


@dataclass(frozen=True)
class Signs(Law):
    """The signs of what normal noise was added to: each is right with the probability that the noise leaves it so."""

    law: Normal
    exact: bool = True
    pairwise: bool = True

    def score(self, seen: Update, made: Update) -> Tensor:
        total = torch.zeros(count(seen), count(made), dtype=torch.float64)
        for name in made:
            sent, mean = (u.flatten(1).double().cpu() for u in (seen[name], made[name] / self.law.deviation))
            right, wrong = (torch.special.log_ndtr(sign * mean) for sign in (1, -1))
            total += (sent > 0).double() @ right.T + (sent < 0).double() @ wrong.T
        return total

    def fits(self, seen: Update, made: Update) -> bool:
        return all(bool((u.sign().abs() <= 1).all()) for u in seen.values())


def squared_distances(seen: Update, made: Update) -> Tensor:
    """[trial, candidate]"""
    return compare_rows(seen, made)[0]


def compare_rows(seen: Update, made: Update) -> tuple[Tensor, Tensor]:
    """Squared distances [trial, candidate], and the squared length of each trial, in one reading.

    Distances from the first candidate, so that what all have in common is lost to no rounding.
    """
    total, lengths = (torch.zeros(count(seen), n, dtype=torch.float64) for n in (count(made), 1))
    for name in made:
        for trial, candidate in blocks(seen[name].flatten(1), made[name].flatten(1)):
            lengths += squares(trial)[:, None]
            one, other = trial - candidate[0], candidate - candidate[0]
            total += squares(one)[:, None] - 2 * (one @ other.T).double().cpu() + squares(other)
    return total.clamp_min(0), lengths[:, 0]


def blocks(seen: Tensor, made: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The same numbers of both, as many as a processor's cache holds while they are read several times."""
    size = max(1, CACHED // (len(seen) + len(made))) if seen.device.type == "cpu" else seen.shape[1]
    yield from zip(seen.split(size, 1), made.split(size, 1), strict=True)


def absolute_distances(seen: Update, made: Update) -> Tensor:
    """[trial, candidate]; in double precision: a sum is nearly all noise, and candidates differ in its last digits."""
    total = torch.zeros(count(seen), count(made), dtype=torch.float64)
    for name in made:
        total += torch.cdist(seen[name].flatten(1).double(), made[name].flatten(1).double(), p=1).cpu()
    return total


def squares(rows: Tensor) -> Tensor:
    """Of each row. The norm reads it once; squares that are summed in double precision take four times as long."""
    return torch.linalg.vector_norm(rows, dim=1).double().cpu().square()


def energy(update: Update, like: Update) -> Tensor:
    """The squared length of each, over the tensors that are compared."""
    return torch.stack([squares(update[name].flatten(1)) for name in like]).sum(0)


def numbers(update: Update) -> int:
    return sum(u[0].numel() for u in update.values())


def count(update: Update) -> int:
    return len(next(iter(update.values())))
