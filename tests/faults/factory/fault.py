"""What a fault is, and the catalogue of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from factory.base import BASES, Base

When = Literal["settings", "audit", "run", "records"]
Tables = Mapping[str, Any]  # of a config
CATALOGUE: dict[str, Fault] = {}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind. `inject` is called with what `when` names, and a stream of random numbers:

    settings: with the tables of the config, which it changes; audit: with the audit, and it returns another; run: with
    a `Patch` of the real code, for as long as the audit runs; records: with a `Folder` of a run, which it changes.
    """

    name: str
    level: str
    when: When
    text: str
    inject: Callable[[Any, Random], Any]
    suits: Callable[[Base], bool]

    def rng(self, seed: int) -> Random:
        return Random(f"{self.name}/{seed}")

    def bases(self, among: Sequence[str] = ()) -> list[Base]:
        """Those that leak and that this fault can befall."""
        leaking = (base for base in BASES.values() if base.truth == "leaks" and self.suits(base))
        return [base for base in leaking if not among or base.name in among]

    def draw_base(self, seed: int, among: Sequence[str] = ()) -> Base:
        return self.rng(seed).choice(self.bases(among))


def fault(level: str, when: When, text: str, suits: Callable[[Base], bool] = lambda base: True):
    """Decorates the function that injects a fault; its name is the kind's."""

    def add(inject: Callable[[Any, Random], Any]) -> Callable[[Any, Random], Any]:
        name = inject.__name__.replace("_", "-")
        assert name not in CATALOGUE, name
        CATALOGUE[name] = Fault(name=name, level=level, when=when, text=text, inject=inject, suits=suits)
        return inject

    return add


def has(*traits: str) -> Callable[[Base], bool]:
    """Bases with all of these traits; `-trait`: without it."""
    wanted = {trait for trait in traits if not trait.startswith("-")}
    unwanted = {trait[1:] for trait in traits if trait.startswith("-")}
    return lambda base: wanted <= base.traits and not unwanted & base.traits
