"""A privacy budget that is kept: how many noisy releases fit into an epsilon, and what one more would have.

Of normal noise alone, whose epsilon is known in closed form (Balle and Wang, 2018, theorem 8; Dong et al., 2022): T
releases with noise sigma are one with sigma / sqrt(T). Nothing is credited for drawing clients or batches: a server
sees who takes part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.dp.accountant import check_delta
from gradveil.dp.certificate import Unit
from gradveil.dp.certify import find_noises

KEY = "epsilon_at_most"
MOST_EPSILON = 1e6
MOST_RELEASES = 10**12


def delta_of_gaussian(epsilon: float, mu: float) -> float:
    """The delta that belongs to an epsilon, where mu is what can be moved by the deviation of the noise."""
    if mu == 0:
        return 0.0
    right = math.exp(min(0.0, epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))))
    return max(0.0, float(ndtr(mu / 2 - epsilon / mu)) - right)


def epsilon_of_gaussian(delta: float, mu: float) -> float:
    """The least epsilon at this delta.

    >>> round(epsilon_of_gaussian(1e-5, 1.0), 3)
    4.377
    """
    if delta_of_gaussian(0.0, mu) <= delta:
        return 0.0
    top = mu * (mu / 2 + 40)  # where the first term is below 1e-300
    found: Any = brentq(lambda eps: delta_of_gaussian(eps, mu) - delta, 0.0, top)
    return float(found)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The most epsilon that one picture, or all pictures of a client, may be exposed to.

    unit: what the account is about: a picture (`example`), or all that a client has
    sigma: the noise of one release by the most that the unit can move
    """

    epsilon_at_most: float
    delta: float
    unit: Unit
    sigma: float

    def epsilon_after(self, releases: int) -> float:
        """Of noisy releases that the same picture, or client, is in."""
        return epsilon_of_gaussian(self.delta, math.sqrt(releases) / self.sigma) if releases else 0.0

    @property
    def releases(self) -> int:
        """The most that fit."""
        low, high = 0, 1
        while high < MOST_RELEASES and self.epsilon_after(high) <= self.epsilon_at_most:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.epsilon_after(middle) <= self.epsilon_at_most else (low, middle)
        return low

    def refusal(self, releases: int) -> str:
        """What is wrong with so many, in one clause."""
        return (
            f"would raise epsilon to {_up(self.epsilon_after(releases))} at delta {self.delta:g} "
            f"({_count(releases)} per {self.unit}), above {self.epsilon_at_most:g}"
        )


def allowance_of(defense: Defense, layers: int, epsilon_at_most: float, delta: float) -> Allowance:
    """ConfigError if no epsilon can be named for this defense, or the limit is no epsilon.

    layers: of the model, which `fedcdp` clips one by one
    """
    check_delta(delta)
    if not 0 < epsilon_at_most <= MOST_EPSILON:
        raise ConfigError(f"must be above 0 and at most {MOST_EPSILON:g}, got {epsilon_at_most}", key=KEY)
    noises, reasons = find_noises(defense, layers)
    if not noises:
        raise ConfigError(f"no epsilon can be kept: {reasons[0]}", key=KEY)
    unit: Unit = "example" if "example" in noises else "client"
    if not noises[unit] > 0:
        raise ConfigError("no epsilon can be kept: there is no noise, choose a defense with some", key=KEY)
    return Allowance(epsilon_at_most=epsilon_at_most, delta=delta, unit=unit, sigma=noises[unit])


def releases_in(training: LocalTraining, pictures: int) -> int:
    """Steps of one round that the same picture is in, at most: every pass deals each picture out once."""
    found = training.for_examples(pictures)
    size = min(found.batch_size or pictures, pictures)
    return math.ceil(found.steps / math.ceil(pictures / size))


def _count(releases: int) -> str:
    return f"{releases:,} noisy release{'' if releases == 1 else 's'}"


def _up(epsilon: float) -> str:
    """Of four digits, rounded up: what is said to be too much shows that it is."""
    places = 3 - math.floor(math.log10(epsilon)) if epsilon > 0 else 0
    return f"{math.ceil(epsilon * 10**places) / 10**places:g}"
