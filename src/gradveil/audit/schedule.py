"""What an audit runs, and in which order: the audited cells, then the controls that its verdict rests on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from gradveil.audit.plan import Cell, Grid, clients_of, diagnostic
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario, describe
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit


def waves(groups: list[list[Cell]], order: list[str]) -> list[list[list[Cell]]]:
    """Controls first, since they say what has leaked; then one attack after the other."""
    controls = [group for group in groups if group[0].control]
    return [controls, *([g for g in groups if not g[0].control and g[0].attack == label] for label in order)]


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


def roles(audit: Audit, compute: Compute, size: int | None = None) -> dict[str, dict[str, Any]]:
    """Every scenario by its name: what it is there for, and what a verdict must know of it."""
    found = {s.name: _role(s, "audited" if s is audit.scenario else "variation") for s in (audit.scenario, *audit.also)}
    easiest = positive_control(audit, compute, size) if audit.controls else None
    return found | ({easiest.name: _role(easiest, "control")} if easiest is not None else {})


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
