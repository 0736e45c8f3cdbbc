"""What the noise of a whole training is worth in differential privacy, for the example that is worst off.

Every example belongs to one client, so the largest epsilon over the clients is that of the federation. It is about one
example and not about a client, and about updates alone: losses and numbers of pictures are reported without noise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.dp.accountant import (
    Accountant,
    Epsilon,
    check_delta,
    epsilon_of,
    layers_of,
    noisy_part,
    say_identified,
)
from gradveil.dp.trade_off import CANDIDATES

DELTA = 1e-5
FAR = 50.0  # above it PRV takes minutes and says no more


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


def worst_candidates(found: Sequence[Exposure]) -> list[Exposure]:
    """Those that no other has both more steps and a higher rate than: epsilon grows with either."""
    candidates: list[Exposure] = []
    for one in sorted(found, key=lambda e: (-e.steps, -e.rate)):
        if not candidates or one.rate > candidates[-1].rate:
            candidates.append(one)
    return candidates


@dataclass(frozen=True, kw_only=True)
class EpsilonBounds:
    """One epsilon by two accountants, of `steps` that each take a picture with the chance `rate`."""

    exposure: Exposure
    rate: float
    steps: int
    rdp: float
    prv: float | None  # None: not computed, since it takes minutes where RDP is far up
    identified: float  # the most that any attacker identifies among 1,001, by the smaller of the two

    def __str__(self) -> str:
        means = say_identified(self.identified)
        if math.isinf(self.rdp):
            return f"epsilon is infinite without noise, {means}"
        prv = f"PRV left out above {FAR:g}" if self.prv is None else f"{self.prv:.4g} by PRV"
        return f"epsilon = {self.rdp:.4g} by RDP, {prv}, {means}"

    def as_json(self) -> dict[str, Any]:
        numbers = {"rdp": self.rdp if math.isfinite(self.rdp) else None, "prv": self.prv}  # JSON knows no infinity
        one, sampling = self.exposure, {"sampling_rate": self.rate, "steps": self.steps}
        who = {"client": one.client, "pictures": one.pictures, "batch": one.batch, "rounds": one.rounds}
        means = {"identified_at_most": self.identified, "candidates": CANDIDATES}
        return {**numbers, **means, **sampling, **who}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The account of a training, or why there is none."""

    defense: str
    delta: float
    sampled: EpsilonBounds | None = None  # as if every step sampled its batch at random (Poisson)
    dealt: EpsilonBounds | None = (
        None  # as it is done here: shuffled, each example counted in every step that it can be in
    )
    reason: str = ""

    def __str__(self) -> str:
        if self.sampled is None or self.dealt is None:
            return f"privacy: not accounted: {self.reason}"
        one = self.sampled.exposure
        took = f"{one.client} takes {one.batch} of {one.pictures} pictures a step, sampling rate {one.rate:.4g}"
        terms = f"{self.defense}, delta = {self.delta:g}, per example and not per client; {took}"
        return f"privacy: {self.sampled} ({terms}, {one.steps} steps in {one.rounds} rounds){self._as_dealt(one)}"

    def _as_dealt(self, one: Exposure) -> str:
        assert self.dealt is not None
        if one.rate == 1 and self.dealt.exposure == one:
            return "; every step takes all pictures"
        here = f"here they are shuffled, an example is in up to {self.dealt.steps} steps: {self.dealt}"
        return f"; this assumes sampled batches (Poisson), {here}"

    def as_json(self) -> dict[str, Any]:
        terms = {"defense": self.defense, "level": "example", "delta": self.delta, "said": str(self)}
        if self.sampled is None or self.dealt is None:
            return {**terms, "reason": self.reason}
        return {**terms, "sampled": self.sampled.as_json(), "dealt": self.dealt.as_json()}


@dataclass(frozen=True, kw_only=True)
class Account:
    """A defense and the number of layers that it clips, to be accounted for many clients."""

    defense: Defense
    layers: int
    delta: float

    def epsilon_by(self, accountant: Accountant, rate: float, steps: int) -> Epsilon:
        return epsilon_of(
            self.defense,
            layers=self.layers,
            sampling_rate=rate,
            steps=steps,
            delta=self.delta,
            accountant=accountant,
        )

    def bounds_of(self, one: Exposure, rate: float, steps: int) -> EpsilonBounds:
        rdp = self.epsilon_by("rdp", rate, steps)
        prv = self.epsilon_by("prv", rate, steps) if rdp.value <= FAR else None
        identified = min(found.identified for found in (rdp, prv) if found is not None)
        value = None if prv is None else prv.value
        return EpsilonBounds(exposure=one, rate=rate, steps=steps, rdp=rdp.value, prv=value, identified=identified)

    def bounds_with_sampling(self, found: Sequence[Exposure]) -> EpsilonBounds:
        """Of the client that is worst off by RDP; PRV of the same."""
        worst = max(worst_candidates(found), key=lambda one: self.epsilon_by("rdp", one.rate, one.steps).value)
        return self.bounds_of(worst, worst.rate, worst.steps)

    def bounds_as_dealt(self, found: Sequence[Exposure]) -> EpsilonBounds:
        often = max(found, key=lambda one: one.uses)
        return self.bounds_of(often, 1.0, often.uses)


def budget_of(defense: Defense, model: nn.Module, found: Sequence[Exposure], delta: float = DELTA) -> Budget | None:
    """Of clients with these exposures; None if the defense does not clip and noise examples.

    What cannot be accounted for (also if the library is missing) is a budget with a `reason` and no error.
    """
    check_delta(delta)
    part = noisy_part(defense)
    if part is None:
        return None
    name = type(part).__name__.lower()
    account = Account(defense=defense, layers=layers_of(defense.model(copy.deepcopy(model))), delta=delta)
    try:
        return Budget(
            defense=name, delta=delta, sampled=account.bounds_with_sampling(found), dealt=account.bounds_as_dealt(found)
        )
    except ConfigError as error:
        return Budget(defense=name, delta=delta, reason=str(error))
