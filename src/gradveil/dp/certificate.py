"""A certificate: the most that any server can identify, from the noise alone. No attack is run for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from gradveil.core.errors import ConfigError
from gradveil.dp.accountant import delta_by_account
from gradveil.dp.trade_off import (
    CANDIDATES,
    check_kappa,
    identified_by_account,
    identified_by_gaussian,
    show_bound,
)

Kind = Literal["gaussian", "pld", "none"]
Unit = Literal["example", "client"]
Neighbors = Literal["add-remove", "replace-one"]
EVENT = "identified"


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Of `event`: whatever a server computes from the updates, it happens with a chance of at most `at_most`.

    `kappa` is its chance without the updates. `sigma` is the noise of one release by the most that one unit can move.
    A unit is an `example` (one picture) or a `client` (all its pictures). Where `kind` is "none", there is no
    certificate: `at_most` is 1 and `reason` says why.
    """

    at_most: float
    kappa: float
    kind: Kind
    sigma: float | None = None
    releases: int = 1  # noisy steps or updates that the same picture is in
    sampling_rate: float = 1.0  # the chance to be in a release, where the server does not see who was
    pictures: int = 1  # of one person, if the bound is to hold for all of them together
    neighbors: Neighbors = "add-remove"
    unit: Unit = "example"
    event: str = EVENT
    condition: str = ""  # what else must hold
    reason: str = ""

    @property
    def advantage(self) -> float:
        """What the updates add to the chance."""
        return self.at_most - self.kappa

    @property
    def holds(self) -> bool:
        """Whether there is one."""
        return self.kind != "none"

    @property
    def mu(self) -> float | None:
        """What one unit can move in all releases together, in standard deviations of the noise; None with sampling.

        k pictures of a person move k times as much, and another picture in place of one moves twice.
        """
        if self.kind != "gaussian" or self.sigma is None:
            return None
        return self.pictures * (2 if self.neighbors == "replace-one" else 1) * math.sqrt(self.releases) / self.sigma

    @property
    def covers(self) -> str:
        """What the number is about."""
        whose = {"example": "one picture of a client", "client": "all pictures of one client together"}[self.unit]
        own = f"{self.pictures} pictures of one person together" if self.pictures > 1 else whose
        often = "one noisy release" if self.releases == 1 else f"{self.releases} noisy releases"
        return f"{own}; {often} of updates, whatever the server sends, knows and computes"

    @property
    def does_not_cover(self) -> tuple[str, ...]:
        """What the number says nothing of."""
        person = ("several pictures of one person: they move more than one (`pictures`)",) if self._is_alone else ()
        sampled = "who takes part: the server sees it, so chance in drawing clients or batches counts for nothing"
        return (
            "what leaves beside the update without noise: losses, accuracies, picture counts, BatchNorm statistics",
            *person,
            *((sampled,) if self.sampling_rate == 1 else ()),
            "what was known before: a known label leaves the candidates of one class, and kappa is one by their number",
            "noise that the attacker knows or can compute, such as from a seed that was shared",
        )

    @property
    def _is_alone(self) -> bool:
        return self.unit == "example" and self.pictures == 1

    def at(self, kappa: float, *, event: str = "", condition: str = "") -> Certificate:
        """The same noise against another chance.

        kappa: the other chance
        event: of what it is the chance; the same if left out
        condition: what else must hold for it
        """
        words = {"event": event or self.event, "condition": condition or self.condition}
        return replace(self, kappa=kappa, at_most=bound(self, kappa), **words)

    def to_json(self) -> dict[str, Any]:
        return {
            "at_most": self.at_most,
            "kappa": self.kappa,
            "advantage": self.advantage,
            "kind": self.kind,
            "sigma": self.sigma,
            "mu": self.mu,
            "releases": self.releases,
            "unit": self.unit,
            "event": self.event,
            "reason": self.reason,
            "said": str(self),
        }

    def __str__(self) -> str:
        if not self.holds:
            return f"no certificate: {self.reason}"
        given = f", for {self.condition}" if self.condition else ""
        return (
            f"at most {show_bound(self.at_most)} {self.event} (random guessing: {show_bound(self.kappa)}){given}; "
            f"per {self.unit}, {self.releases} noisy {'release' if self.releases == 1 else 'releases'}"
        )


def bound(one: Certificate, kappa: float) -> float:
    """The most that happens with this noise, of what has a chance of `kappa` without the updates."""
    check_kappa(kappa)
    if one.mu is not None:
        return identified_by_gaussian(kappa, one.mu)
    if one.sigma is not None:
        return identified_by_account(kappa, delta_by_account(one.sigma, one.sampling_rate, one.releases, "pld"))
    return 1.0


def certify_gaussian(
    *,
    sigma: float,
    kappa: float = 1 / CANDIDATES,
    releases: int = 1,
    pictures: int = 1,
    neighbors: Neighbors = "add-remove",
    unit: Unit = "example",
) -> Certificate:
    """By the trade-off of normal noise, in closed form: Phi(Phi^-1(kappa) + mu), mu = sqrt(releases) / sigma.

    sigma: standard deviation of the noise by the most that one unit can move; 0: no certificate
    kappa: chance without the updates, see `chance`
    releases: noisy releases that the same picture is in
    pictures: of one person, if the bound is to hold for all of them together: mu times as much
    neighbors: `add-remove` compares with the round without the picture, which is what identification asks;
        `replace-one` with another picture in its place: mu twice as much
    unit: what `sigma` is about
    """
    blank = Certificate(at_most=1.0, kappa=kappa, kind="gaussian", sigma=sigma, releases=releases, unit=unit)
    return _certify(replace(blank, pictures=pictures, neighbors=neighbors))


def certify_by_account(
    *,
    sigma: float,
    kappa: float = 1 / CANDIDATES,
    releases: int = 1,
    sampling_rate: float = 1.0,
    unit: Unit = "example",
) -> Certificate:
    """By the distribution of the privacy loss (extra `dp`): the least of e^epsilon kappa + delta(epsilon).

    Without sampling it is `certify_gaussian`, numerically. With it, it holds only where the server does not see which
    pictures a release is made of.

    sampling_rate: the chance of the picture to be in a release, drawn anew for each; the rest as in `certify_gaussian`
    """
    if not 0 < sampling_rate <= 1:
        raise ConfigError(f"must be above 0 and at most 1, got {sampling_rate}", key="sampling_rate")
    blank = Certificate(at_most=1.0, kappa=kappa, kind="pld", sigma=sigma, releases=releases, unit=unit)
    return _certify(replace(blank, sampling_rate=sampling_rate))


def refuse_certificate(reason: str, kappa: float = 1 / CANDIDATES) -> Certificate:
    """What is said where nothing can be promised: up to everything, and why."""
    check_kappa(kappa)
    return Certificate(at_most=1.0, kappa=kappa, kind="none", reason=reason)


def _certify(blank: Certificate) -> Certificate:
    """With its bound, once all that it is made of is checked."""
    check_kappa(blank.kappa)
    sigma = blank.sigma
    if sigma is None or not (sigma >= 0 and math.isfinite(sigma)):
        raise ConfigError(f"must be 0 or more and finite, got {sigma}", key="sigma")
    for key, count in (("releases", blank.releases), ("pictures", blank.pictures)):
        if count < 1:
            raise ConfigError(f"must be 1 or more, got {count}", key=key)
    if blank.neighbors not in get_args(Neighbors):
        raise ConfigError(f"must be add-remove or replace-one, got {blank.neighbors!r}", key="neighbors")
    if sigma == 0:
        return refuse_certificate("there is no noise, and without noise nothing is ruled out", blank.kappa)
    return replace(blank, at_most=bound(blank, blank.kappa))
