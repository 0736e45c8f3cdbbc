"""What the noise of a training is worth: how often each client's examples are fed, and the privacy budget of it."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from gradveil.core.client import BATCH_NORMS, in_client_mode
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.dp.accountant import layers_of, noisy_part
from gradveil.dp.allowance import KEY, Allowance, allowance_of
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


def check_delta_is_used(delta: float | None, defense: Defense, epsilon_at_most: float | None = None) -> None:
    if delta is not None and noisy_part(defense) is None and epsilon_at_most is None:
        raise ConfigError("belongs to the epsilon of dpsgd and fedcdp, leave it out or use one of them", key="delta")


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The last round that a privacy budget allows, and why the next one is refused."""

    round: int
    reason: str

    def __str__(self) -> str:
        return f"round {self.round + 1} is refused: it {self.reason}"


def find_stop(federation: Federation, sizes: Sequence[int], allowance: Allowance) -> Stop | None:
    """None if the whole training is within the allowance. A refusal of the first round is a ConfigError."""
    releases = allowance.releases
    last, over = 0, federation.rounds + 1
    while over - last > 1:
        middle = (last + over) // 2
        within = releases_after(middle, federation, sizes, allowance) <= releases
        last, over = (middle, over) if within else (last, middle)
    if last == federation.rounds:
        return None
    stop = Stop(round=last, reason=allowance.refusal(releases_after(over, federation, sizes, allowance)))
    if last == 0:
        raise ConfigError(f"{stop}; raise it, or choose more noise or fewer `local_epochs`", key=KEY)
    return stop


def releases_after(rounds: int, federation: Federation, sizes: Sequence[int], allowance: Allowance) -> int:
    """Noisy releases of the picture, or the client, that is in most."""
    found = exposures(sizes, replace(federation, rounds=rounds))
    return max((one.uses if allowance.unit == "example" else one.rounds for one in found), default=0)


def allowance_for(
    model: nn.Module, defense: Defense, federation: Federation, epsilon_at_most: float | None, delta: float | None
) -> Allowance | None:
    """The allowance of a federation; ConfigError if its noise does not cover all that leaves a client."""
    if epsilon_at_most is None:
        return None
    shared = defense.model(copy.deepcopy(model))
    found = allowance_of(defense, layers_of(shared), epsilon_at_most, DELTA if delta is None else delta)
    if federation.batchnorm == "batch-shared" and any(isinstance(layer, BATCH_NORMS) for layer in shared.modules()):
        raise ConfigError("BatchNorm statistics leave the clients without noise, use `batchnorm = batch`", key=KEY)
    if federation.error_feedback and defense.acts_at("update"):
        raise ConfigError("the next update takes the noise of the last one back, leave it out", key="error_feedback")
    return found


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
