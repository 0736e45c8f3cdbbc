"""NVFlare's filter `SVTPrivacy`: a share of the numbers, chosen by the sparse vector technique, cut and noised.

The technique is of Dwork et al. (2009); the filter's variant is that of Lyu, Su and Li (2017), who say which budgets
hold. Equal in distribution to the filter of NVFlare 2.9, whose random numbers are numpy's. Its epsilon holds if one
example moves no number by more than `gamma` (of a step), which nothing here bounds: no certificate follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Kept, Laplace, Law, Round
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Update

PAPER = Paper(
    "Understanding the Sparse Vector Technique for Differential Privacy", "Lyu et al.", 2017, "arXiv:1603.01699"
)


@dataclass(frozen=True, kw_only=True)
class Svt(Defense):
    """NVFlare's: of the numbers whose noised magnitude is above a noised threshold a `fraction` is sent, with noise.

    `gamma` cuts magnitudes, in the units of what is sent, and `tau` is the threshold. `epsilon` is the budget of the
    choice, of which `epsilon_threshold` and `epsilon_query` are parts; left out, they are 1 : (2 c)^(2/3) for c numbers
    sent. Despite its name `noise_var` is the budget of each number sent: its Laplacian noise has the scale 2 gamma /
    noise_var. `replace`: numbers are drawn with replacement, so fewer are sent. `steps`: local steps that the client
    declares to NVFlare, by which magnitudes are divided first.
    """

    strength: ClassVar[Strength | None] = Strength.by_factor("noise_var", 1e3, 1e-3, each=4)

    fraction: float = 0.1
    epsilon: float = 0.1
    noise_var: float = 0.1
    gamma: float = 1e-5
    tau: float = 1e-6
    replace: bool = True
    epsilon_threshold: float | None = None
    epsilon_query: float | None = None
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"svt: fraction = {self.fraction} is out of range, take 0 < fraction <= 1")
        for option in ("epsilon", "noise_var", "gamma", "epsilon_threshold", "epsilon_query"):
            value = getattr(self, option)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"svt: {option} = {value} is out of range, take a number > 0")
        if not math.isfinite(self.tau):
            raise ConfigError(f"svt: tau = {self.tau} is no threshold, take a finite number")
        if self.steps < 1:
            raise ConfigError(f"svt: steps = {self.steps} is no number of local steps, take 1 or more")
        of_threshold, of_query = self.split_epsilon(1)
        if min(of_threshold, of_query) <= 0 or not math.isclose(of_threshold + of_query, self.epsilon, rel_tol=1e-5):
            raise ConfigError(
                f"svt: epsilon_threshold and epsilon_query must add up to {self.epsilon}, leave one of them out"
            )

    def split_epsilon(self, count: int) -> tuple[float, float]:
        """Of the threshold and of the numbers that are held against it."""
        if self.epsilon_threshold is None and self.epsilon_query is None:
            of_threshold = self.epsilon / (1 + (2 * count) ** (2 / 3))
            return of_threshold, self.epsilon - of_threshold
        of_threshold, of_query = self.epsilon_threshold, self.epsilon_query
        return (
            self.epsilon - (of_query or 0.0) if of_threshold is None else of_threshold,
            self.epsilon - (of_threshold or 0.0) if of_query is None else of_query,
        )

    @property
    def scale(self) -> float:
        """Of the noise on what is sent."""
        return 2 * self.gamma / self.noise_var * self.steps

    def update(self, update: Update, rng: Generator) -> Update:
        flat = torch.cat([u.detach().flatten() for u in update.values()]).double() / self.steps
        count = min(math.ceil(len(flat) * self.fraction), len(flat))
        cut = flat.clamp(-self.gamma, self.gamma)
        chosen = self._choose(cut.abs(), count, rng)
        noise = self.scale / self.steps * laplacian(len(chosen), rng).to(flat)
        sent = torch.zeros_like(flat).index_put((chosen,), (cut[chosen] + noise) * self.steps)
        parts = sent.split([u.numel() for u in update.values()])
        pairs = zip(update.items(), parts, strict=True)
        return {name: part.view_as(u).to(u.dtype) if u.dim() else u for (name, u), part in pairs}

    def _choose(self, magnitudes: Tensor, count: int, rng: Generator) -> Tensor:
        """Places of the numbers that are sent. All are held against one threshold, pass after pass, until there are
        `count`; then so many of them are drawn. In which pass a number gets through is a geometric draw."""
        of_threshold, of_query = self.split_epsilon(count)
        threshold = self.tau + self.gamma / of_threshold * float(laplacian(1, rng))
        passes = draw_passes((threshold - magnitudes) / (2 * self.gamma * count / of_query), rng)
        accepted = (passes <= passes.sort().values[count - 1]).nonzero().flatten()
        if not self.replace:
            return accepted[torch.randperm(len(accepted), generator=rng)[:count].to(accepted.device)]
        drawn = torch.randint(len(accepted), (count,), generator=rng)
        return accepted[drawn.to(accepted.device)].unique()

    def quiet(self) -> Defense:
        return Cut(most=self.gamma * self.steps)

    def law(self, round: Round) -> Law | None:
        """Of the numbers sent, if each were as likely to be chosen whatever it is: hence an estimate."""
        return Kept(Laplace(scale=self.scale), pairwise=True) if round.members == 1 else None

    def surrogate(self, seen: Update) -> SoftCut:
        """What was sent is plain to see, and that it was cut before: the noise has mean zero."""
        return SoftCut(kept={name: u != 0 for name, u in seen.items()}, most=self.gamma * self.steps)


def laplacian(count: int, rng: Generator) -> Tensor:
    """Of scale 1, in double precision: the difference of two exponentials."""
    first, second = (-(-torch.rand(count, generator=rng, dtype=torch.float64)).log1p() for _ in range(2))
    return first - second


MANY = 30.0  # the logarithm of passes beyond which no two numbers get through in the same


def draw_passes(short: Tensor, rng: Generator) -> Tensor:
    """The pass in which each number gets over a threshold that it falls short of by so many scales of its noise.

    It does with the chance p in each pass, so the pass is geometric: an exponential number by -log(1 - p), rounded up.
    """
    chance = torch.where(short >= 0, 0.5 * (-short.abs()).exp(), 1 - 0.5 * (-short.abs()).exp())
    log_rate = torch.where(chance > 1e-9, (-(-chance).log1p()).clamp_min(1e-300).log(), -short - math.log(2))
    drawn = -torch.rand(len(short), generator=rng, dtype=torch.float64).to(short).neg().log1p()
    log_passes = drawn.clamp_min(1e-300).log() - log_rate
    return torch.where(log_passes < MANY, log_passes.clamp_max(MANY).exp().ceil().clamp_min(1), 
                       math.exp(MANY) + log_passes)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cut(Defense):
    """Every number cut at one magnitude: what the filter sends, without its choice and its noise."""

    most: float

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u.clamp(-self.most, self.most) if u.dim() else u for name, u in update.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftCut(Defense):
    """A tanh in the place of the cut, no narrower than a tensor's mean magnitude, where the cut has no slope."""

    kept: Mapping[str, Tensor]
    most: float

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self._soften(u) * self.kept[name] if u.dim() else u for name, u in update.items()}

    def _soften(self, u: Tensor) -> Tensor:
        return self.most * torch.tanh(u / u.abs().mean().clamp_min(self.most))
