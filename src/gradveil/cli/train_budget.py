"""What the noise of a training is worth, as the command tells it: the options of it, and the account."""

from __future__ import annotations

from collections.abc import Sequence

from gradveil.cli.train_asked import Asked
from gradveil.cli.train_data import Material, model_for
from gradveil.core.client import in_client_mode
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.dp.accountant import noisy_part
from gradveil.dp.budget import DELTA, Budget, budget_of
from gradveil.train.privacy import exposures
from gradveil.train.settings import Federation


def check_delta_of(asked: Asked, defense: Defense) -> None:
    delta = asked.delta
    if delta is not None and not 0 < delta < 1:
        raise ConfigError(f"--delta: {delta} is out of range, take a number between 0 and 1, such as 1e-5")
    if delta is not None and noisy_part(defense) is None:
        raise ConfigError("--delta: is of the epsilon of dpsgd and fedcdp, leave it out or give one of them")


def privacy_of(
    asked: Asked, material: Material, federation: Federation, defense: Defense, sizes: Sequence[int]
) -> Budget | None:
    """Of clients with so many pictures; None where the noise is not of the kind that can be accounted for."""
    if noisy_part(defense) is None:
        return None
    model = model_for(asked.model, material)
    defense.check(in_client_mode(model, federation.local_training(1, 0.0)))  # a refusal comes before the account
    return budget_of(defense, model, exposures(sizes, federation), DELTA if asked.delta is None else asked.delta)
