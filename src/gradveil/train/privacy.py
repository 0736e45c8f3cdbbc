"""What the noise of a training is worth: how often each client's examples are fed, and the privacy budget of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from torch import nn

from gradveil.core.client import in_client_mode
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.dp.accountant import noisy_part
from gradveil.dp.budget import DELTA, Budget, Exposure, budget_of
from gradveil.train.clients import draw_clients
from gradveil.train.settings import Federation


def privacy_of(
    model: nn.Module, defense: Defense, federation: Federation, sizes: Sequence[int], delta: float | None
) -> Budget | None:
    """The budget of a federation of clients with `sizes` pictures; None for a defense whose noise has no epsilon."""
    if noisy_part(defense) is None:
        return None
    defense.check(in_client_mode(model, federation.local_training(1, 0.0)))  # a refusal comes before the account
    return budget_of(defense, model, exposures(sizes, federation), DELTA if delta is None else delta)


def check_delta_is_used(delta: float | None, defense: Defense) -> None:
    if delta is not None and noisy_part(defense) is None:
        raise ConfigError("belongs to the epsilon of dpsgd and fedcdp, leave it out or use one of them", key="delta")


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
