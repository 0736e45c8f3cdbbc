"""What an audit runs, and in which order: the audited cells, then the controls that its verdict rests on."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from gradveil.audit import canaries
from gradveil.audit.plan import Cell, Grid, clients_of, diagnostic, undefended
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario, describe
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit
    from gradveil.audit.lineup_plan import LineUpCell


def waves(groups: list[list[Cell]], order: list[str]) -> list[list[list[Cell]]]:
    """First undefended pictures, where an attack shows its worth and which are soon there to look at; then the
    controls, since they say what has leaked; then one attack after the other. The last of several takes longest."""
    controls = [group for group in groups if group[0].control]
    audited = [group for group in groups if not group[0].control]
    shown = [group for group in audited if _is_shown_first(group, order)]
    rest = [group for group in audited if not _is_shown_first(group, order)]
    return [shown, controls, *([g for g in rest if g[0].attack == label] for label in order)]


def _is_shown_first(group: list[Cell], order: list[str]) -> bool:
    return group[0].is_control and (group[0].attack != order[-1] or len(order) == 1)


def shards(audit: Audit, compute: Compute, size: int) -> Iterator[list[Cell]]:
    """What is run at once. Attackers on the same updates come together: one may only repeat the other."""
    for group in plan(audit, compute, size):
        yield from (list(together) for together in zip(*(cell.shards(size) for cell in group), strict=True))


def plan(audit: Audit, compute: Compute, size: int | None = None) -> Iterator[list[Cell]]:
    """The audited cells, then the controls."""
    parts = {"defenses": audit.defenses, "attacks": audit.attacks, "compare": audit.controls}
    grid = Grid(seed=Seed(audit.seed), compute=compute, **parts)
    audited = [place(scenario, compute) for scenario in (audit.scenario, *audit.also)]
    yield from chain.from_iterable(map(grid.cells, audited))
    if not audit.controls:
        return
    if (easiest := positive_control(audit, compute, size)) is not None:
        yield from grid.undefended(easiest)
        yield from grid.controls(easiest, ("prior",))
    for scenario in own_controls(audit, audited, size or compute.shard):
        yield from grid.undefended(scenario)
    yield from grid.controls(audited[0], ("prior", "random", "doubled") if audit.convergence else ("prior", "random"))
    for scenario in audited[1:]:
        yield from grid.controls(scenario, ("prior",))


def positive_control(audit: Audit, compute: Compute, size: int | None = None) -> Scenario | None:
    """Where these attacks must succeed to be believed, one shard; None if the audit itself goes there."""
    if not audit.scenario.has_truth:
        stand_in = audit.stand_in
        return None if stand_in is None else place(clients_of(stand_in, slice(size or compute.shard)), compute)
    undefended = any(defense.is_none for defense in audit.defenses.values())
    if undefended and any(s.regime == "diagnostic" for s in (audit.scenario, *audit.also)):
        return None
    easiest = diagnostic(audit.scenario, early=audit.early is not None)
    if audit.early is not None:
        easiest = replace(easiest, model=audit.early)
    return place(clients_of(easiest, slice(size or compute.shard)), compute)


def own_controls(audit: Audit, audited: Iterable[Scenario], size: int) -> Iterator[Scenario]:
    """Where no undefended model is audited, one shard of each scenario without a defense: do the attacks work there?

    The easiest case is what `positive_control` is for.
    """
    if any(defense.is_none for defense in audit.defenses.values()) and audit.scenario.received is None:
        return
    for scenario in audited:
        if scenario.has_truth and scenario.regime != "diagnostic":
            yield undefended(clients_of(scenario, slice(size)))


def roles(audit: Audit, compute: Compute, size: int | None = None) -> dict[str, dict[str, Any]]:
    """Every scenario by its name: what it is there for, and what a verdict must know of it."""
    audited = (audit.scenario, *audit.also)
    found = {s.name: _role(s, _name_of_role(s, audit)) for s in audited}
    if not audit.controls:
        return found
    for own in own_controls(audit, audited, size or compute.shard):
        found[own.name] = _role(own, "control") | {"control_of": own.name.removesuffix("-undefended")}
    easiest = positive_control(audit, compute, size)
    return found | ({easiest.name: _role(easiest, "control")} if easiest is not None else {})


def planned(all_cells: Iterable[Cell | LineUpCell]) -> dict[str, Any]:
    """What a finished run must hold: the clients of each scenario, and how many of them each cell attacks, in order."""
    clients: dict[str, dict[str, None]] = {}
    cells: dict[tuple[str, ...], int] = {}
    for cell in all_cells:
        clients.setdefault(cell.scenario.name, {}).update(dict.fromkeys(cell.scenario.names))
        cells[cell.place] = cells.get(cell.place, 0) + len(cell.scenario.names)
    return {
        "clients": {name: list(them) for name, them in clients.items()},
        "cells": [[*place, count] for place, count in cells.items()],
    }


def _name_of_role(scenario: Scenario, audit: Audit) -> str:
    if scenario is audit.scenario:
        return "audited"
    return canaries.ROLE if scenario.chosen else "variation"


def _role(scenario: Scenario, role: str) -> dict[str, Any]:
    return {"role": role, "regime": scenario.regime, "trained": scenario.trained, **describe(scenario)}


def place(scenario: Scenario, compute: Compute) -> Scenario:
    """A copy on the device and in the precision of the run."""

    def move(batch: Batch) -> Batch:
        return Batch(*(x.to(compute.device, compute.dtype) for x in batch))

    model = copy.deepcopy(scenario.model).to(compute.device, compute.dtype)
    public = None if scenario.public is None else move(scenario.public)
    received = None if scenario.received is None else scenario.received.to(compute.device, compute.dtype)
    return replace(scenario, model=model, private=move(scenario.private), public=public, received=received)
