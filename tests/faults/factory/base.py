"""A base is an audit of which the true word is known: a few pictures of 8 x 8, seconds or less."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest

from gradveil.audit.audit import Audit
from gradveil.config import build, from_tables

Truth = Literal["leaks", "no leak found", "bounded"]  # where no leak is found, "bounded" is right too
Tables = dict[str, Any]  # of a config
BASES: dict[str, Base] = {}


@dataclass(frozen=True, kw_only=True)
class Base:
    """`tables` draws the settings, `change` puts what no setting can say into the audit that they describe.

    traits: what faults ask for. `search` or `closed` form, `surrogate` (the informed attacker needs it), `batch`,
    `planted`, `alone` (no defense at all).
    """

    name: str
    truth: Truth
    tables: Callable[[Random], Tables]
    change: Callable[[Audit, Random], Audit] = field(default=lambda audit, rng: audit)
    traits: frozenset[str] = frozenset()

    def draw(self, seed: int) -> Tables:
        return self.tables(self.rng(seed))

    def audit(self, tables: Mapping[str, Any], seed: int) -> Audit:
        return self.change(build(from_tables(tables)), self.rng(seed))

    def rng(self, seed: int) -> Random:
        return Random(f"{self.name}/{seed}")


def base(truth: Truth, *traits: str, change: Callable[[Audit, Random], Audit] | None = None):
    """Decorates the function that draws a base's settings."""

    def add(tables: Callable[[Random], Tables]) -> Callable[[Random], Tables]:
        name = tables.__name__.replace("_", "-")
        more = {} if change is None else {"change": change}
        BASES[name] = Base(name=name, truth=truth, tables=tables, traits=frozenset(traits), **more)
        return tables

    return add


def settings(rng: Random, attack: Mapping[str, Any], defense: Mapping[str, Any] | None, **scenario: Any) -> Tables:
    """Digits of 8 x 8 against one attack and, beside the undefended model, one defense: `d`."""
    defenses = {"none": {"name": "none"}} | ({} if defense is None else {"d": dict(defense)})
    pictures = {"data": "digits", "data_options": {"size": 8, "split": "train"}, "model": "mlp"}
    own = {"images": rng.choice((8, 9, 10)), "model_seed": rng.randrange(5), "attacker": "curious"}
    return {
        "seed": rng.randrange(10**6),
        "gallery": 100,
        "metrics": ["psnr", "retrieval"],
        "convergence": True,
        "lineup": 0,  # what is tested is how attacks are judged
        "scenario": {**pictures, **own, **scenario},
        "attack": {"a": dict(attack)},
        "defense": defenses,
    }


remember = functools.cache(functools.cache)  # one memory for each function, however often it is asked for


def read_digits_once(patch: pytest.MonkeyPatch) -> None:
    """Every audit loads its data, and thousands of audits load the same."""
    module = importlib.import_module("gradveil.data.digits")
    patch.setattr(module, "_table", remember(module._table))
