"""An attack: the inverse of the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

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
    labels: Float[Tensor, "client example class ..."]
    found: Bool[Tensor, "client example"]  # an active attack may find fewer than were sent
    loss: Float[Tensor, " client"]  # what the attacker sees; not finite means the trial failed
    backend: str = "closed form"
    fell_back: bool = False  # whether a faster back end could not run; a note says why
    notes: tuple[str, ...] = ()  # for the reader of the result
    converged: Bool[Tensor, " client"] | None = None  # None: the method has no notion of it
    fed: Float[Tensor, "client example channel height width"] | None = None  # what the model saw if `images` are right
    broke: Float[Tensor, " client"] | None = None  # step at which the loss was no number any more, infinite if never


Requirement = Literal["malicious", "views", "mixture"]
Use = Literal["surrogate", "views", "defense"]


def times(steps: int, factor: float) -> int:
    """So many times the steps, one at least.

    >>> times(10, 0.25), times(3, 0.01)
    (2, 1)
    """
    return max(1, round(factor * steps))


class Attack(ABC):
    """`plant` what is sent (honest servers: nothing), then `reconstruct` from what comes back."""

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return model

    @property
    def requires(self) -> frozenset[Requirement]:
        """What it cannot do without: `malicious`, to modify the model; a known defense that has `views` or a `mixture`.

        By default an attack requires to modify the model if it overrides `plant`.
        """
        return frozenset() if type(self).plant is Attack.plant else frozenset({"malicious"})

    @property
    def uses(self) -> frozenset[Use]:
        """What it takes of a known defense: its `surrogate`, its `views`, or anything else of the `defense`.

        Where that is nothing, the attacker who knows the defense runs what the one who does not know it runs.
        """
        return frozenset({"defense"})

    def undefended(self) -> Attack:
        """The same attack where nothing is done to the pictures: what its controls run."""
        return self

    def networks(self) -> tuple[str, ...]:
        """Files of trained networks that it uses: none may have been trained on a picture that is attacked."""
        return ()

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        """NotApplicableError if it cannot plant in this model, for pictures [channel, height, width]."""
        return None

    def check(self, seen: Observation) -> None:
        """NotApplicableError if there is nothing to work on in the model that was sent."""
        return None

    def prior_only(self) -> Attack:
        """The attack that ignores the update: what is left is what it believed before. Run on a meaningless update."""
        return self

    def scaled(self, factor: float) -> Attack | None:
        """The same attack with so many times the steps; None if it takes none."""
        return None

    @property
    def evaluations(self) -> tuple[int, int] | None:
        """How often it plays a client's round again, at least and at most; None if that is not a matter of steps."""
        return None

    @abstractmethod
    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction: ...
