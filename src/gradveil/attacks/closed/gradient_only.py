"""Closed forms take the update for a sum of gradients. Of Adam and the like it is none, and they say so."""

from __future__ import annotations

from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation

SEARCH = "choose an attack that searches, such as invertgrad"


def require_gradients(seen: Observation, key: str, exact: bool = False) -> None:
    """NotApplicableError where the update is no sum of gradients; `exact`: nor one whose length and loss are plain."""
    training = seen.training
    if training.optimizer != "sgd":
        raise NotApplicableError(
            f"reads gradients, and an update of {training.optimizer} is no sum of them, {SEARCH}", key=key
        )
    if exact and not (training.is_linear and training.has_plain_loss):
        raise NotApplicableError(
            f"follows the gradient of the plain loss, and the client trains with {training.summary}, {SEARCH}", key=key
        )
