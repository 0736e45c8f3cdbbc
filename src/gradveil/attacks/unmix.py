"""Taking mixtures apart: what a server does with what it read off an update if it knows that OASIS mixed it.

OASIS (Jeter et al., 2024) finds it "not trivial to extract the original image from such an overlap" of a picture and
its copies. But an overlap of known copies is a linear map of the picture, and a linear map can be inverted as far
as it loses nothing. Each picture that the inner attack reads off is explained by several mixtures: all copies alike,
those that only move pixels, and each copy that brings in a border. The best explanation that is good enough is undone,
by least squares with total variation for what the mixture lost; where none is, the picture stays as it was read.

What can be had: over a whole group, such as the four quarter turns or a flip, the mixture is a projection. It keeps the
part of the picture that the group leaves alone (a quarter, a half), and no convex prior that does not change with the
group can tell more, since it prefers the mixture to the picture; total variation is nearly one. Sets that are no group
lose less: quarter turns with a flip beside them nothing, and undoing them amplifies errors five times at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.linear import linear
from gradveil.attacks.linear_model import linear_model
from gradveil.attacks.rtf import rtf
from gradveil.attacks.unmix_solver import Copies, apply_map, matrices_of, mean_of, solve
from gradveil.core.attack import Attack, Reconstruction, Requirement
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

PAPER = Paper(
    "OASIS: Offsetting Active Reconstruction Attacks in Federated Learning", "Jeter et al.", 2024, "arXiv:2311.13739"
)
HERE = Compute()


def unmix(
    *,
    inner: Literal["rtf", "cah", "linear", "linear-model"] = "rtf",
    neurons: int = 256,
    functional: str = "mean",
    tv: float = 1e-5,
    explained: float = 0.01,
) -> Unmix:
    """Reads pictures with the attack `inner` and separates mixtures of the copies that a known defense feeds.

    `neurons`, `functional`: of the inner attack, where it has them; `tv`: weight of the total variation; `explained`:
    RMS error in [0, 1] up to which a mixture explains a picture. The model behind `rtf` sees the hidden units alone
    (connection `replace`), so that copies in one bin have the same loss and weigh alike.
    """
    planting = {"neurons": neurons, "functional": functional}
    reading: dict[str, Callable[[], Attack]] = {
        "rtf": partial(rtf, **planting, connection="replace"),
        "cah": partial(cah, neurons=neurons),
        "linear": linear,
        "linear-model": linear_model,
    }
    return Unmix(inner=reading[inner](), tv=tv, explained=explained)


@dataclass(frozen=True, kw_only=True)
class Unmix(Attack):
    """The inner attack, and what it found taken apart; without a known defense that makes copies, the inner attack."""

    inner: Attack
    tv: float = 1e-5
    explained: float = 0.01

    def __post_init__(self) -> None:
        if self.tv <= 0 or self.explained <= 0:
            raise ConfigError(
                f"tv = {self.tv}, explained = {self.explained}: out of range, take numbers > 0", key="unmix"
            )

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return self.inner.plant(model, public, seed)

    @property
    def requires(self) -> frozenset[Requirement]:
        return self.inner.requires

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        self.inner.check_model(model, shape)

    def check(self, seen: Observation) -> None:
        self.inner.check(seen)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = HERE) -> Reconstruction:
        got = self.inner.reconstruct(seen.as_fed(), seed, compute)
        if seen.defense is None or seen.knowledge.copies == 1:
            return got
        one = {name: u[0] for name, u in seen.update.items()}
        copies = partial(copies_by, seen.defense.surrogate(one))
        images = got.images.clone()
        images[got.found] = self.take_apart(got.images[got.found], copies)
        return replace(got, images=images)

    @torch.no_grad()
    def take_apart(self, leaked: Tensor, copies: Copies) -> Tensor:
        """Each picture by the mixture that explains it best, if one is good enough."""
        best, off = leaked, leaked.new_full((len(leaked),), self.explained)
        for mixture in mixtures(matrices_of(copies, leaked)):
            found = solve(mixture, leaked, self.tv).clamp(0, 1)
            error = (apply_map(mixture, found) - leaked).square().flatten(1).mean(1).sqrt()
            better = error < off  # false for NaN
            best, off = torch.where(better[:, None, None, None], found, best), torch.where(better, error, off)
        return best


def copies_by(defense: Defense, pictures: Tensor) -> Tensor:
    """What a defense feeds for each picture, [picture, copy, ...]."""
    labels = pictures.new_ones(len(pictures), 1)
    fed = defense.batch(Batch(pictures, labels), Seed().rng()).images
    return fed.unflatten(0, (len(pictures), -1))


def mixtures(copies: list[Tensor]) -> Iterator[Tensor]:
    """The maps that may be behind a picture: all copies alike, those that only move pixels, each of the others alone.

    A copy that only moves pixels is not looked for alone: it is as much of a picture as the original.
    """
    moving = [bool((m.sum(1).to_dense() - 1).abs().max() < 1e-3) for m in copies]  # white stays white, to the border
    whole = [matrix for matrix, moves in zip(copies, moving, strict=True) if moves]
    yield mean_of(copies)
    if 1 < len(whole) < len(copies):
        yield mean_of(whole)
    yield from (matrix for matrix, moves in zip(copies, moving, strict=True) if not moves)
