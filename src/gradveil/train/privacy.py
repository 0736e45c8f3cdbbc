"""How often every client's examples are fed in a federation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gradveil.dp.budget import Exposure
from gradveil.train.clients import draw_clients
from gradveil.train.settings import Federation


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
    return Counter(i for number in range(1, federation.rounds + 1) for i in draw_clients(federation, number))


def exposure(name: str, pictures: int, turns: int, federation: Federation) -> Exposure:
    batch = min(federation.batch_size, pictures)
    if federation.method == "fedsgd":  # an epoch is so many rounds, whether the client takes part in them or not
        steps, uses = turns, min(turns, math.ceil(federation.rounds / (pictures // batch)))
    else:
        steps, uses = turns * federation.local_training(pictures, 0.0).steps, turns * federation.local_epochs
    return Exposure(client=name, pictures=pictures, batch=batch, rounds=turns, steps=steps, uses=uses)
