"""Plans and convergence checks for runs that are made by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradveil.experiment.record import Record


def plan_of(records: Sequence[Record]) -> dict[str, Any]:
    """A run that was to do what it has done."""
    clients: dict[str, Counter[str]] = {}
    cells: dict[tuple[str, ...], set[str]] = {}
    for one in (one for one in records if one.control != "another"):
        clients.setdefault(one.scenario, Counter())[one.client] += 1
        cell = one.scenario, one.defense, one.attack, one.control or one.attacker
        cells.setdefault(cell, set()).add(one.client)
    ordered = {name: sorted(them, key=lambda c: (-them[c], c)) for name, them in clients.items()}
    return {"clients": ordered, "cells": [[*cell, len(them)] for cell, them in cells.items()]}


def with_doubled(records: Sequence[Record], attack: str = "a") -> list[Record]:
    """With the convergence check of an attack: on every undefended picture twice the steps see as much."""
    own = [one for one in records if (one.defense, one.attack, one.control) == ("none", attack, "")]
    return [*records, *map(again, own)]


def again(one: Record) -> Record:
    """The same trial with twice the steps and the same outcome."""
    head, _, rest = one.key.partition(f"/{one.attacker}/")
    return replace(one, control="doubled", key=f"{head}/doubled/{rest}")
