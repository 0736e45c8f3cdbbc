"""How often a client's examples are fed in a whole training: what a privacy account is made of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gradveil.fl.clients import drawn
from gradveil.fl.settings import Federation


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """One client's noisy steps over all rounds that it takes part in."""

    client: str
    pictures: int
    batch: int  # of them in a step; the last of an epoch may be smaller, and counts as a whole one
    rounds: int  # that it takes part in. Who does is seen, so that it was drawn is no help
    steps: int
    uses: int  # steps that one example can be in at most: every epoch deals each picture out once

    @property
    def rate(self) -> float:
        """The chance of one example to be in a step, if steps drew anew each time."""
        return self.batch / self.pictures


def exposures(sizes: Sequence[int], federation: Federation) -> tuple[Exposure, ...]:
    """Of every client that takes part at all. `sizes` are the clients' numbers of pictures."""
    turns = participations(federation)
    named = zip(federation.names, sizes, strict=True)
    return tuple(
        exposure(name, size, turns[i], federation) for i, (name, size) in enumerate(named) if size and turns[i]
    )


def participations(federation: Federation) -> Counter[int]:
    """By client, in how many rounds."""
    if federation.per_round in (None, federation.clients):
        return Counter(dict.fromkeys(range(federation.clients), federation.rounds))
    return Counter(i for number in range(1, federation.rounds + 1) for i in drawn(federation, number))


def exposure(name: str, pictures: int, turns: int, federation: Federation) -> Exposure:
    batch = min(federation.batch_size, pictures)
    if federation.method == "fedsgd":  # an epoch is so many rounds, whether the client takes part in them or not
        steps, uses = turns, min(turns, math.ceil(federation.rounds / (pictures // batch)))
    else:
        steps, uses = turns * federation.local_training(pictures, 0.0).steps, turns * federation.local_epochs
    return Exposure(client=name, pictures=pictures, batch=batch, rounds=turns, steps=steps, uses=uses)


def worst_candidates(found: Sequence[Exposure]) -> list[Exposure]:
    """Those that no other has both more steps and a higher rate than: epsilon grows with either."""
    kept: list[Exposure] = []
    for one in sorted(found, key=lambda e: (-e.steps, -e.rate)):
        if not kept or one.rate > kept[-1].rate:
            kept.append(one)
    return kept
