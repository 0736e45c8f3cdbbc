"""The privacy budget of the sampled Gaussian mechanism, by Google's dp-accounting (the extra `dp`).

`rdp` is the Renyi accountant (Mironov et al., 2019); `pld` composes the distribution of the privacy loss numerically
and is tighter. What opacus calls `prv` is of the latter kind, so that name means `pld` here.

Of a stack of defenses the outermost `dpsgd` or `fedcdp` counts: whatever is inside of it is clipped, and what acts on
the update later only sees what was noised already.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from torch import nn

from gradveil.core.client import parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.defenses._per_example import layer_of
from gradveil.dp.trade_off import (
    CANDIDATES,
    LEAST_EPSILON,
    identified_by_account,
    identified_by_gaussian,
    show_bound,
)

Accountant = Literal["rdp", "pld", "prv"]
LEDGERS = 8  # remembered: the one of `pld` holds megabytes
RELATION = "one example added or removed, batches sampled at random (Poisson), every round composed"


@dataclass(frozen=True, kw_only=True)
class Epsilon:
    """A privacy budget, and the delta, accountant and relation that belong to it.

    `identified` is what it means for pictures: the most that any attacker identifies among 1,001, see `identified_by`.
    """

    value: float
    delta: float
    accountant: str
    identified: float
    relation: str = RELATION

    def __str__(self) -> str:
        terms = f"{self.accountant}; {self.relation}"
        return f"epsilon = {self.value:.4g} at delta = {self.delta:g} ({terms}), {say_identified(self.identified)}"


def say_identified(share: float, candidates: int = CANDIDATES) -> str:
    """What an epsilon means, in the unit of attacks."""
    return f"at most {show_bound(share)} identified among {candidates:,}"


def epsilon(
    *, noise: float, sampling_rate: float, rounds: int, delta: float, accountant: Accountant = "rdp"
) -> Epsilon:
    """The epsilon of `rounds` sums of clipped gradients, each with noise of `noise` times the clip.

    `sampling_rate` is the chance of one example to be in a round's batch.
    """
    _check(noise, sampling_rate, rounds, delta, accountant)
    kind = "pld" if accountant == "prv" else accountant
    value = _epsilon_value(noise, sampling_rate, rounds, delta, kind) if noise else math.inf
    identified = identified_by(noise, sampling_rate, rounds, kind)
    return Epsilon(value=value, delta=delta, accountant=kind, identified=identified)


def identified_by(
    noise: float, sampling_rate: float, rounds: int, kind: str = "pld", kappa: float = 1 / CANDIDATES
) -> float:
    """The most that is identified under this very noise. Without sampling its trade-off is known in closed form."""
    if sampling_rate == 1 or not noise:
        return identified_by_gaussian(kappa, math.sqrt(rounds) / noise if noise else math.inf)
    return _identified_by_account(noise, sampling_rate, rounds, kind, kappa)


@lru_cache(maxsize=1024)
def _identified_by_account(noise: float, sampling_rate: float, rounds: int, kind: str, kappa: float) -> float:
    least = 0.0 if kind == "rdp" else LEAST_EPSILON  # what the accountants of the library know
    return identified_by_account(kappa, delta_by_account(noise, sampling_rate, rounds, kind), least)


def _epsilon_value(noise: float, sampling_rate: float, rounds: int, delta: float, kind: str) -> float:
    _library()  # what is remembered must not hide that it is missing
    return _compose(noise, sampling_rate, rounds, delta, kind)


@lru_cache(maxsize=1024)
def _compose(noise: float, sampling_rate: float, rounds: int, delta: float, kind: str) -> float:
    with _quiet():
        return float(_ledger(noise, sampling_rate, rounds, kind).get_epsilon(delta))


def delta_by_account(noise: float, sampling_rate: float, rounds: int, kind: str) -> Callable[[float], float]:
    """Epsilon -> delta of the same sums as in `epsilon`; `pld` knows epsilons below zero too."""
    ledger = _ledger(noise, sampling_rate, rounds, kind)

    def delta_at(eps: float) -> float:
        with _quiet():
            return float(ledger.get_delta(eps))

    return delta_at


@lru_cache(maxsize=LEDGERS)
def _ledger(noise: float, sampling_rate: float, rounds: int, kind: str) -> Any:
    dp: Any = _library()
    event: Any = dp.GaussianDpEvent(noise)
    if sampling_rate < 1:
        event = dp.PoissonSampledDpEvent(sampling_rate, event)
    ledger = dp.rdp.RdpAccountant() if kind == "rdp" else dp.pld.PLDAccountant()
    with _quiet():
        return ledger.compose(event, rounds)


@contextmanager
def _quiet() -> Iterator[None]:
    """The library warns of every Renyi order that it leaves out; the bound without them is larger and still holds."""
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
            f"{error.name} is not installed, install the extra with pip install 'gradveil[dp]'"
        ) from error
    return dp_accounting


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(f"must be above 0 and below 1, such as 1e-5, got {delta}", key="delta")


def _check(noise: float, sampling_rate: float, rounds: int, delta: float, accountant: str) -> None:
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"must be 0 or more and finite (a multiple of the clip), got {noise}", key="noise")
    if not 0 < sampling_rate <= 1:
        raise ConfigError(f"must be above 0 and at most 1, got {sampling_rate}", key="sampling_rate")
    if rounds < 1:
        raise ConfigError(f"must be 1 or more, got {rounds}", key="rounds")
    check_delta(delta)
    if accountant not in get_args(Accountant):
        raise unknown("accountant", accountant, get_args(Accountant))


def noisy_part(defense: Defense) -> Defense | None:
    """The part that clips and adds noise last; None: no epsilon can be named."""
    found = [part for part in defense.parts if part.noises_examples]
    return found[-1] if found else None


def epsilon_of(
    defense: Defense, *, layers: int, sampling_rate: float, steps: int, delta: float, accountant: Accountant = "rdp"
) -> Epsilon:
    """The epsilon of `steps` noisy steps. ConfigError if the noise does not cover all that one example can move.

    `layers` is of the model that is shared, see `layers_of`.
    """
    noise = example_noise(defense, layers)
    return epsilon(noise=noise, sampling_rate=sampling_rate, rounds=steps, delta=delta, accountant=accountant)


def example_noise(defense: Defense, layers: int) -> float:
    """The noise of one step by the most that one example can move. ConfigError if it does not cover all of that."""
    part = noisy_part(defense)
    noise = None if part is None else part.noise_multiplier(layers)
    if part is None or noise is None:
        raise ConfigError("the defense clips no example's gradient and adds no noise to it, take dpsgd or fedcdp")
    _check_noise_covers_all(defense, part)
    return noise / defense.copies  # one example is clipped once for each copy of it


def layers_of(model: nn.Module) -> int:
    """As `fedcdp` clips them: a weight and its bias are one."""
    return len({layer_of(name) for name in parameters_of(model)})


def _check_noise_covers_all(defense: Defense, part: Defense) -> None:
    last = max(number for number, one in enumerate(defense.parts) if one is part)
    for number, one in enumerate(defense.parts):
        name = type(one).__name__.lower()
        if one.knowledge().mixes:
            raise ConfigError(f"{name} mixes pictures, so one example moves more than one clipped gradient")
        if number > last and one.acts_at("gradient"):
            raise ConfigError(
                f"{name} looks at the pictures again after the noise was added, put it first in the stack"
            )
