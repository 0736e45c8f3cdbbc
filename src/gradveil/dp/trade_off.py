"""From what noise is worth to how often a picture is identified, whatever the attacker computes.

Let Q be what is sent without the picture and P_v what is sent with candidate v in its place. If any test of Q against
P_v that errs on Q with chance a succeeds on P_v with at most 1 - f(a), then an attacker who guesses v among candidates
with chance kappa beforehand is right with at most 1 - f(kappa) (Balle et al., 2022; Hayes et al., 2023). The average
over v of Q(guess = v) is kappa, however the guess is made, and f is convex: so neighbors by adding or removing the
picture are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from gradveil.core.errors import ConfigError

CANDIDATES = 1001  # the original and a gallery of 1,000
LEAST_EPSILON = -30.0  # e^-30 times any kappa is nothing; below zero the privacy loss of strong noise counts


def chance(candidates: int, attacks: int = 1, top: int = 1) -> float:
    """Kappa: how often the picture is named without its update.

    candidates: pictures among which it is sought, itself included; where its label is known, those of its class
    attacks: how many attacks name a picture each, if it counts that one of them is right
    top: how many pictures an attack may name

    >>> chance(1001), chance(1001, attacks=2, top=5)
    (0.000999000999000999, 0.00999000999000999)
    """
    for key, value, least in (("candidates", candidates, 2), ("attacks", attacks, 1), ("top", top, 1)):
        if value < least:
            raise ConfigError(f"must be {least} or more, got {value}", key=key)
    if attacks * top >= candidates:
        raise ConfigError(
            f"must be more than the {attacks * top} pictures that may be named, got {candidates}", key="candidates"
        )
    return attacks * top / candidates


def check_kappa(kappa: float) -> None:
    if not 0 < kappa < 1:
        raise ConfigError(f"must be above 0 and below 1 (one by the number of candidates), got {kappa}", key="kappa")


def identified_by_gaussian(kappa: float, mu: float) -> float:
    """The most that is identified under normal noise: Phi(Phi^-1(kappa) + mu).

    kappa: how often the picture is named without its update, see `chance`
    mu: what the picture can move by the standard deviation of the noise; infinite without noise

    >>> round(identified_by_gaussian(1 / 1001, 2.0), 4)
    0.1377
    """
    check_kappa(kappa)
    # the two inverses are exact in the tail: 1 - kappa is never formed, so a kappa of 1e-12 keeps its digits
    return max(kappa, float(ndtr(ndtri(kappa) + mu)))


def identified_by_account(kappa: float, delta_at: Callable[[float], float], least: float = LEAST_EPSILON) -> float:
    """The most that is identified by any account: the least of e^epsilon kappa + delta(epsilon), at most 1.

    kappa: how often the picture is named without its update, see `chance`
    delta_at: the account's delta for an epsilon. Each epsilon gives a bound, so one that is not quite the best is one
    least: smallest epsilon that the account knows
    """
    check_kappa(kappa)
    found = minimize_scalar(
        lambda eps: math.exp(eps) * kappa + delta_at(float(eps)),
        bounds=(least, -math.log(kappa)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return min(1.0, max(kappa, float(found.fun)))


def show_bound(share: float) -> str:
    """A bound in percent, rounded up: what is printed holds too.

    >>> show_bound(0.13774006), show_bound(0.99984), show_bound(1 / 1001), show_bound(1.0), show_bound(2e-7)
    ('13.8 %', '100 %', '0.1 %', '100 %', '2e-05 %')
    """
    percent = 100 * share
    if percent <= 0:
        return "0 %"
    places = 2 - math.floor(math.log10(percent)) if percent < 0.01 else 1
    step = 10.0**-places
    up = min(100.0, math.ceil(percent / step - 1e-6) * step)
    return f"{up:.3g} %"
