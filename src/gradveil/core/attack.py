"""An attack: the inverse of the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor, nn

from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """What an attack made of the updates. All fields carry the client axis of the observation."""

    images: Float[Tensor, "client example channel height width"]
    labels: Float[Tensor, "client example class"]
    found: Bool[Tensor, "client example"]  # an active attack may find fewer than were sent
    loss: Float[Tensor, " client"]  # what the attacker sees; not finite means the trial failed
    backend: str = "closed form"
    fell_back: bool = False  # whether a faster back end could not run; a note says why
    notes: tuple[str, ...] = ()  # for the reader of the result
    converged: Bool[Tensor, " client"] | None = None  # None: the method has no notion of it
    broke: Float[Tensor, " client"] | None = None  # step at which the loss was no number any more, infinite if never


class Attack(ABC):
    """`plant` what is sent (honest servers: nothing), then `reconstruct` from what comes back."""

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return model

    @property
    def reads_defense(self) -> bool:
        """Whether knowing the defense matters beyond its surrogate."""
        return True

    @property
    def reads_views(self) -> bool:
        """Whether it tries the views of a known defense, though it reads nothing else of it."""
        return False

    @property
    def needs_views(self) -> bool:
        """Whether it is only for an attacker who knows a defense that has views."""
        return False

    @property
    def needs_mixture(self) -> bool:
        """Whether it is only for an attacker who knows a defense that mixes pictures."""
        return False

    def undefended(self) -> Attack:
        """The same attack where nothing is done to the pictures: what its controls run."""
        return self

    @property
    def plants(self) -> bool:
        return type(self).plant is not Attack.plant

    def networks(self) -> tuple[str, ...]:
        """Files of trained networks that it brings along: none may have been trained on a picture that is attacked."""
        return ()

    def check(self, seen: Observation) -> None:
        """NotApplicableError if there is nothing to work on in this model."""
        return None

    def prior_only(self) -> Attack:
        """The attack that ignores the update: what is left is what it believed before. Run on a meaningless update."""
        return self

    def doubled(self) -> Attack | None:
        """The same attack with twice the patience; None if it has no such thing."""
        return None

    @abstractmethod
    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction: ...
