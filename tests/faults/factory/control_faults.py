"""Faults of the controls and of what carries results: a control unlike the audit, results that are another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import torch

from factory.fault import fault, has
from factory.patch import Patch
from gradveil.core.types import Batch

GRID = "gradveil.audit.plan.Grid"
DEFENDED = has("-alone")


def weaken(method: Any, rng_steps: int) -> Any:
    """The attack as somebody would weaken it: a search by its steps, a closed form by what it may read."""
    if hasattr(method, "steps"):
        return replace(method, steps=rng_steps)
    return replace(method, only=("none.of.these",)) if hasattr(method, "only") else method


def change_cells(patch: Patch, name: str, change: Any) -> None:
    """Change cells as they are planned."""

    def cells(plain: Any, self: Any, *args: Any) -> Iterator[list[Any]]:
        for group in plain(self, *args):
            changed = [one for one in map(change, group) if one is not None]
            if changed:
                yield changed

    patch.around(f"{GRID}.{name}", cells, always=True)


@fault("control", "run", "the control runs a stronger attack than the audit of the defense", DEFENDED)
def control_stronger(patch: Patch, rng: Random) -> None:
    steps = rng.choice((1, 2, 3))
    change_cells(patch, "cells", lambda c: c if c.undefended else replace(c, method=weaken(c.method, steps)))


@fault("control", "run", "the informed attacker runs a weaker attack than all others", DEFENDED)
def adaptive_weakened(patch: Patch, rng: Random) -> None:
    steps = rng.choice((1, 2, 3))
    change_cells(patch, "cells", lambda c: c if c.attacker == "unaware" else replace(c, method=weaken(c.method, steps)))


@fault("control", "run", "the control attacks other pictures than the audit", DEFENDED)
def control_of_other_pictures(patch: Patch, rng: Random) -> None:
    def other(cell: Any) -> Any:
        if not cell.undefended:
            return cell
        images = cell.scenario.private.images
        private = Batch(torch.rand_like(images).round(), cell.scenario.private.labels)
        return replace(cell, scenario=replace(cell.scenario, private=private))

    change_cells(patch, "cells", other)


@fault("control", "run", "the informed attacker is never run", DEFENDED)
def adaptive_never_run(patch: Patch, rng: Random) -> None:
    change_cells(patch, "cells", lambda c: None if c.attacker == "adaptive" else c)


@fault("control", "run", "the informed attacker is told nothing", DEFENDED)
def adaptive_told_nothing(patch: Patch, rng: Random) -> None:
    def forget(cell: Any) -> Any:
        threat = replace(cell.scenario.threat, knows_defense=False)
        return replace(cell, scenario=replace(cell.scenario, threat=threat))

    change_cells(patch, "cells", lambda c: forget(c) if c.attacker == "adaptive" else c)


@fault("control", "run", "the negative controls are given the update that they must not see")
def controls_see_the_update(patch: Patch, rng: Random) -> None:
    """Negative controls that see what they must not: everything that leaks then counts as known before."""
    patch.around("gradveil.audit.controls.blind", lambda plain, seen, seed: seen, always=True)


@fault("control", "run", "the blank picture is the private one")
def blank_is_private(patch: Patch, rng: Random) -> None:
    """What the attacker could show without the update is far too good."""
    better = rng.choice((30.0, 60.0, 200.0))

    def good(plain: Any, *args: Any, **outcome: Any) -> Any:
        record = plain(*args, **outcome)
        return replace(record, blank=better if record.blank is not None else None)

    patch.around("gradveil.audit.trial._record", good)


# what carries results


@fault("carrier", "run", "a worker returns the results of the shard before", DEFENDED)
def worker_returns_old_results(patch: Patch, rng: Random) -> None:
    """Under the new keys: the reconstructions are another cell's."""
    kept: list[Any] = []
    delay = rng.choice((1, 2))

    def old(plain: Any, self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
        kept.append(plain(self, seen, *rest, **more))
        before = kept[-1 - delay] if len(kept) > delay else kept[-1]
        return before if before.images.shape == kept[-1].images.shape else kept[-1]

    for place in ("engine.inversion.Inversion", "attacks.linear.FirstLinear", "attacks.rtf.RobbingTheFed"):
        patch.around(f"gradveil.{place}.reconstruct", old)


@fault("carrier", "run", "a worker returns whole trials of the control under the keys of the audit", DEFENDED)
def worker_returns_the_control(patch: Patch, rng: Random) -> None:
    kept: list[Any] = []

    def old(plain: Any, cell: Any, judge: Any, *more: Any) -> Any:
        own = plain(cell, judge, *more)
        if cell.control == "prior":
            kept[:] = own
        return own if cell.undefended or not kept else [relabel(*pair) for pair in zip(own, kept, strict=False)]

    patch.around("gradveil.audit.runner.run_cell", old, always=True)
    run_controls_first(patch)


def relabel(own: Any, other: Any) -> Any:
    """Another trial's outcome under this one's keys."""
    names = ("key", "scenario", "defense", "attack", "attacker", "control", "client", "example")
    pairs = zip(own.records, other.records, strict=False)
    return other._replace(records=[replace(b, **{name: getattr(a, name) for name in names}) for a, b in pairs])


def run_controls_first(patch: Patch) -> None:
    def first(plain: Any, audit: Any, compute: Any, size: Any = None) -> Iterator[Any]:
        groups = list(plain(audit, compute, size))
        yield from sorted(groups, key=lambda group: not group[0].control)

    patch.around("gradveil.audit.schedule.plan", first, always=True)


@fault("carrier", "run", "results of some shards are lost on their way")
def results_lost(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere")
    every = rng.choice((2, 3, 4))
    calls = iter(range(10**9))

    def lose(plain: Any, runner: Any, trials: Any) -> Any:
        return plain(runner, [trial for trial in trials if next(calls) % every])

    patch.around("gradveil.audit.runner.keep_trials", lose, always=True)


@fault("carrier", "run", "an attack raises an error for some clients")
def attack_raises(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", "defended", "adaptive", "audited")
    some = rng.choice((1, 2, 3))

    def raises(plain: Any, self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
        if any(int(name.split(".")[0][1:]) % some == 0 for name in seen.names):
            raise RuntimeError("cannot allocate")
        return plain(self, seen, *rest, **more)

    for place in ("engine.inversion.Inversion", "attacks.linear.FirstLinear", "attacks.rtf.RobbingTheFed"):
        patch.around(f"gradveil.{place}.reconstruct", raises)


@fault("carrier", "run", "every reconstruction comes out black, or as numbers that are none")
def reconstructions_spoiled(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", "defended", "adaptive", "audited")
    value = rng.choice((0.0, 0.5, 1.0, torch.nan, torch.inf))

    def spoiled(plain: Any, self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
        got = plain(self, seen, *rest, **more)
        return replace(got, images=torch.full_like(got.images, value))

    for place in ("engine.inversion.Inversion", "attacks.linear.FirstLinear", "attacks.rtf.RobbingTheFed"):
        patch.around(f"gradveil.{place}.reconstruct", spoiled)
