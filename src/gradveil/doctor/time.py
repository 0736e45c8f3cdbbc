"""How long an audit takes on this machine, for each budget.

Of a quick model the steps of a search are timed as `gradveil.audit.estimate` does it; of a slow one a single gradient
through a client's round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import torch

from gradveil.audit.audit import Audit
from gradveil.audit.estimate import Cost, Rates, add_up, rates_of
from gradveil.audit.lineup_plan import SHARED, auto_size, plan_lineups
from gradveil.audit.plan import Cell
from gradveil.audit.schedule import shards
from gradveil.capture.causes.story import train_once
from gradveil.config.build import build
from gradveil.config.schema import AuditConfig
from gradveil.core.compute import Compute
from gradveil.core.types import Batch
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject
from gradveil.models.notes import collect_notes

LONG = 3600.0
SLOW = 0.1  # seconds of a gradient
FEW = 2  # pictures


def look_at_time(subject: Subject) -> Iterator[Finding]:
    audit, compute = subject.audit, Compute()
    left_out = subject.left_out
    rates, times = rates_of(audit, rough=True), {}
    seconds, plain, steps = time_gradient(audit)
    for budget, config in subject.by_budget.items():
        whole = audit if budget == subject.config.budget else _build_untrained(config, subject)
        kept = replace(whole, attacks={k: v for k, v in whole.attacks.items() if k not in left_out})
        cells: Iterable[Cell] = chain.from_iterable(shards(kept, compute, compute.shard))
        if seconds > SLOW:
            cells = [_add_cost(rates, cell, seconds, steps) for cell in cells]
        parts = add_up(map(rates.of_cell, cells))
        times[budget] = sum(part.most for part in parts)
    chosen = times[subject.config.budget]
    table = ", ".join(f"{budget} {describe(seconds)}" for budget, seconds in times.items())
    if seconds > SLOW:
        table += f"; line-ups about {describe(plain * count_pictures(audit, compute) / steps)}"
    yield Finding(
        topic="time",
        level="note" if chosen > LONG else "ok",
        what=f"attacks take at most about, on this machine: {table}",
        why=f"the {subject.config.budget} budget is chosen" if chosen > LONG else "",
        do="take fewer clients with `images`, smaller pictures, `budget = quick` or a GPU" if chosen > LONG else "",
    )


def _build_untrained(config: AuditConfig, subject: Subject) -> Audit:
    """The weights change nothing of the time, and take time to read."""
    scenario = replace(config.scenario, weights="")
    with collect_notes():
        return build(replace(config, scenario=scenario), subject.dataset, replays=False)


def _add_cost(rates: Rates, cell: Cell, seconds: float, steps: int) -> Cell:
    """Of a slow model nothing is measured again: a step is counted by its pictures and local steps."""
    training = cell.scenario.training.for_examples(cell.scenario.private.images.shape[1])
    work = cell.scenario.private.images.shape[1] * training.steps / steps
    rates.costs.setdefault((cell.scenario.name, "step"), Cost(fixed=0.0, each=seconds * work))
    return cell


def count_pictures(audit: Audit, compute: Compute) -> int:
    """That are trained on for all line-ups, local step by local step."""
    found = 0
    for cell in plan_lineups(audit, compute, compute.shard):
        examples = cell.scenario.private.images.shape[1]
        rounds = len(cell.scenario.names) * examples * examples
        shared = auto_size(cell.scenario, cell.defense) == SHARED  # one gradient of each candidate
        found += cell.candidates * (1 if shared else rounds) * cell.scenario.training.for_examples(examples).steps
    return found


def time_gradient(audit: Audit) -> tuple[float, float, int]:
    """Seconds of one gradient by one picture, through the round of the first client, and of the round alone, and the
    steps of that round."""
    scenario = audit.scenario
    images, labels = (part[0, :FEW].float() for part in scenario.private)
    training = scenario.training.for_examples(len(images))
    start = time.perf_counter()
    dummies = images.clone().requires_grad_()
    update = train_once(scenario.model, Batch(dummies, labels), training)
    plain = time.perf_counter() - start
    torch.autograd.grad(torch.stack([one.square().sum() for one in update.values()]).sum(), dummies)
    return (time.perf_counter() - start) / len(images), plain / len(images), training.steps


def describe(seconds: float) -> str:
    """A duration in its largest unit.

    >>> describe(90), describe(7200)
    ('90 seconds', '2.0 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
