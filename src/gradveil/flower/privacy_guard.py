"""The privacy budget of a client mod: noisy releases are counted in the client's state, and one too many is refused.

Flower keeps that state for one run. What a client sent in another run is another account.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import ConfigRecord, Context

from gradveil.core.defense import Defense
from gradveil.core.errors import GradveilError
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.defenses._per_example import layer_of
from gradveil.dp.allowance import Allowance, allowance_of, releases_in

SPENT = "gradveil-privacy"  # the record of a client's state that counts noisy releases


class VeilError(GradveilError):
    """An update that would have left the client without the defense. Flower tells the server this text."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The most epsilon that a client may spend, and the delta that belongs to it."""

    epsilon_at_most: float
    delta: float

    def begin(self, defense: Defense, names: Sequence[str], context: Context) -> Spending:
        """Of one round of a model with parameters of these names. VeilError if not even one release is left."""
        layers = len({layer_of(name) for name in names})
        allowance = allowance_of(defense, layers, self.epsilon_at_most, self.delta)
        found = Spending(allowance, spent_in(context))
        found.check(1)
        if allowance.unit == "client":
            found.spend(1)
        return found


class Spending:
    """The releases of one round, beside those of the rounds before."""

    def __init__(self, allowance: Allowance, before: int) -> None:
        self.allowance, self.before, self.now = allowance, before, 0
        self._most = allowance.releases

    def check(self, more: int) -> None:
        """VeilError if so many more releases exceed the allowance."""
        total = self.before + self.now + more
        if total > self._most:
            raise VeilError(f"veil: this round {self.allowance.refusal(total)}, nothing is sent")

    def spend(self, more: int) -> None:
        self.check(more)
        self.now += more

    def spend_training(self, training: LocalTraining, pictures: int) -> None:
        """All noisy steps that one picture is in, before the first is taken."""
        if self.allowance.unit == "example":
            self.spend(releases_in(training, pictures))

    def count_calls(self, gradient: GradientFn) -> GradientFn:
        """Of a training loop of the user's own: every noisy gradient may be made of the same picture."""
        if self.allowance.unit != "example":
            return gradient

        def spend_and_compute(params: Params, batch: Batch) -> Update:
            self.spend(1)
            return gradient(params, batch)

        return spend_and_compute

    def keep(self, context: Context) -> None:
        """Before anything is sent: what is counted twice is no harm, what is not counted is."""
        context.state[SPENT] = ConfigRecord({"releases": self.before + self.now})


def spent_in(context: Context) -> int:
    """Noisy releases of the rounds before."""
    return int(context.state.config_records.get(SPENT, ConfigRecord({"releases": 0}))["releases"])  # type: ignore[arg-type]
