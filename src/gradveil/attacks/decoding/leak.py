"""Where encodings come from: the rounds of a client laid side by side, and an inner attack that reads their updates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Update

Leak = Literal["gradient", "encoding"]


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """All that an attacker has of every client, the rounds one after the other, the last one at the end."""

    images: Tensor  # [client, encoding, channel, height, width]
    labels: Tensor  # [client, encoding, class]
    loss: Tensor  # [client]: of the inner attack, over the rounds
    backend: str = "closed form"
    fell_back: bool = False
    notes: tuple[str, ...] = ()


def encodings_of(seen: Observation, leak: Leak, inner: Attack, seed: Seed, compute: Compute) -> Encodings:
    """The encodings themselves, where the threat model gives them away, or what `inner` makes of the updates."""
    rounds = (*seen.history, seen)
    if leak == "gradient":
        return _join(inner.reconstruct(side_by_side(seen), seed, compute), len(rounds))
    if seen.knowledge.encodings is None:
        raise NotApplicableError(
            'leak = "encoding": this attacker sees updates and no encodings, '
            'grant them (scenario.encodings = "seen") or take leak = "gradient"'
        )
    labels = [one.labels for one in rounds if one.labels is not None]
    if len(labels) < len(rounds):
        raise NotApplicableError(
            'leak = "encoding": without updates there is nothing to read labels from, grant them with `labels = known`'
        )
    images = torch.cat([one.knowledge.encodings for one in rounds if one.knowledge.encodings is not None], 1)
    return Encodings(images=images, labels=torch.cat(labels, 1), loss=_zero_loss(seen.update))


def side_by_side(seen: Observation) -> Observation:
    """Every round of every client as a client of its own, one round after the other; the same model went out in all."""
    rounds = (*seen.history, seen)
    names = tuple(f"{name} in round {number}" for number, one in enumerate(rounds) for name in one.names)
    labels = [one.labels for one in rounds if one.labels is not None]
    statistics = [one.statistics for one in rounds if one.statistics is not None]
    return replace(
        seen,
        update=_concatenate([one.update for one in rounds]),
        names=names if seen.history else seen.names,
        labels=torch.cat(labels) if labels else None,
        statistics=_concatenate(statistics) if statistics else None,
        history=(),
        knowledge=replace(seen.knowledge, mixture=None, encodings=None),
    )


def _join(got: Reconstruction, rounds: int) -> Encodings:
    """From rounds as clients back to encodings as examples."""

    def by_client(x: Tensor) -> Tensor:
        return x.unflatten(0, (rounds, -1)).transpose(0, 1)

    return Encodings(
        images=by_client(got.images).flatten(1, 2),
        labels=by_client(got.labels).flatten(1, 2),
        loss=by_client(got.loss).mean(1),
        backend=got.backend,
        fell_back=got.fell_back,
        notes=got.notes,
    )


def _concatenate(parts: list[Update]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _zero_loss(update: Update) -> Tensor:
    """Zero for every client: no update was matched. What is not a number stays so, a broken client fails."""
    return sum((0 * u.flatten(1).sum(1) for u in update.values()), start=torch.zeros(()))
