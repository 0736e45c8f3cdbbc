"""The privacy budget of the sampled Gaussian mechanism, by Google's dp-accounting (the extra `dp`).

`rdp` is the Renyi accountant (Mironov et al., 2019); `pld` composes the distribution of the privacy loss numerically
and is tighter. What opacus calls `prv` is of the latter kind, so that name means `pld` here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from gradveil.core.errors import ConfigError

Accountant = Literal["rdp", "pld", "prv"]
VACUOUS = 10.0  # e^10: an event may be 22,000 times as likely with an example as without it
RELATION = "one example added or removed, batches sampled at random (Poisson), every round composed"


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A budget and what it speaks of."""

    value: float
    delta: float
    accountant: str
    vacuous: bool
    relation: str = RELATION

    def __str__(self) -> str:
        says = ", vacuous: it rules out next to nothing" if self.vacuous else ""
        return f"epsilon = {self.value:.4g} at delta = {self.delta:g} ({self.accountant}; {self.relation}){says}"


def epsilon(
    *, noise: float, sampling_rate: float, rounds: int, delta: float, accountant: Accountant = "rdp"
) -> Epsilon:
    """The epsilon of `rounds` sums of clipped gradients, each with noise of `noise` times the clip.

    `sampling_rate` is the chance of one example to be in a round's batch.
    """
    _check(noise, sampling_rate, rounds, delta, accountant)
    kind = "pld" if accountant == "prv" else accountant
    value = _spent(noise, sampling_rate, rounds, delta, kind) if noise else math.inf
    return Epsilon(value=value, delta=delta, accountant=kind, vacuous=value > VACUOUS)


def _spent(noise: float, sampling_rate: float, rounds: int, delta: float, kind: str) -> float:
    _library()  # what is remembered must not hide that it is missing
    return _composed(noise, sampling_rate, rounds, delta, kind)


@lru_cache(maxsize=1024)
def _composed(noise: float, sampling_rate: float, rounds: int, delta: float, kind: str) -> float:
    dp: Any = _library()
    event: Any = dp.GaussianDpEvent(noise)
    if sampling_rate < 1:
        event = dp.PoissonSampledDpEvent(sampling_rate, event)
    ledger = dp.rdp.RdpAccountant() if kind == "rdp" else dp.pld.PLDAccountant()
    with _quiet():
        return float(ledger.compose(event, rounds).get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns of every Renyi order that it leaves out; without them the bound is larger and still one."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _library() -> Any:
    """Imported when it is needed: it takes a second, and nothing else here does without it."""
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"accounting: {error.name} is not installed, install the extra with pip install 'gradveil[dp]'"
        ) from error
    return dp_accounting


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"accounting: delta = {delta} is out of range, take 0 < delta < 1")


def _check(noise: float, sampling_rate: float, rounds: int, delta: float, accountant: str) -> None:
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"accounting: noise = {noise} is not a multiple of the clip, take a number >= 0")
    if not 0 < sampling_rate <= 1:
        raise ConfigError(f"accounting: sampling_rate = {sampling_rate} is not a share, take 0 < sampling_rate <= 1")
    if rounds < 1:
        raise ConfigError(f"accounting: rounds = {rounds} is no number of rounds, take 1 or more")
    check_delta(delta)
    if accountant not in get_args(Accountant):
        raise ConfigError(f"accounting: unknown accountant {accountant!r}, known: {', '.join(get_args(Accountant))}")
