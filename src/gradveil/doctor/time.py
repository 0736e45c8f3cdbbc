"""How long an audit takes on this machine, for each budget.

Of a quick model the steps of a search are timed as `gradveil.audit.estimate` does it; of a slow one a single gradient
through a client's round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import torch

from gradveil.audit.audit import Audit
from gradveil.audit.estimate import Cost, Rates, add_up, rates_of
from gradveil.audit.schedule import shards
from gradveil.capture.causes.story import train_once
from gradveil.config.build import build
from gradveil.config.schema import AuditConfig
from gradveil.core.compute import Compute
from gradveil.core.types import Batch
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

LONG = 3600.0
SLOW = 0.1  # seconds of a gradient
FEW = 2  # pictures


def look_at_time(subject: Subject) -> Iterator[Finding]:
    audit, compute = subject.audit, Compute()
    left_out = subject.left_out
    rates = _measure(audit)
    times = {}
    for budget, config in subject.by_budget.items():
        whole = audit if budget == subject.config.budget else _build_untrained(config, subject)
        kept = replace(whole, attacks={k: v for k, v in whole.attacks.items() if k not in left_out})
        parts = add_up(map(rates.of_cell, chain.from_iterable(shards(kept, compute, compute.shard))))
        times[budget] = sum(part.most for part in parts)
    chosen = times[subject.config.budget]
    table = ", ".join(f"{budget} {describe(seconds)}" for budget, seconds in times.items())
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
    return build(replace(config, scenario=scenario), subject.dataset, replays=False)


def _measure(audit: Audit) -> Rates:
    """By one gradient through a client's round where that is slow."""
    rates = rates_of(audit, rough=True)
    seconds = time_gradient(audit)
    if seconds > SLOW:
        for scenario in (audit.scenario, *audit.also):
            for name in (scenario.name, f"{scenario.name}-canaries"):
                rates.costs[name, "step"] = Cost(fixed=0.0, each=seconds)
    return rates


def time_gradient(audit: Audit) -> float:
    """Seconds of one gradient by the pictures, through the round of the first client: by a few of them."""
    scenario = audit.scenario
    images, labels = (part[0, :FEW].float() for part in scenario.private)
    share = scenario.private.images.shape[1] / len(images)
    start = time.perf_counter()
    dummies = images.clone().requires_grad_()
    update = train_once(scenario.model, Batch(dummies, labels), scenario.training)
    torch.autograd.grad(torch.stack([one.square().sum() for one in update.values()]).sum(), dummies)
    return share * (time.perf_counter() - start)


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
