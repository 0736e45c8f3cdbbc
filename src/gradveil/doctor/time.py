"""How long an audit takes on this machine, for each budget."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.audit.estimate import estimate, rates_of
from gradveil.config.build import build
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

LONG = 3600.0


def look_at_time(subject: Subject) -> Iterator[Finding]:
    rates, times = None, {}
    for budget, config in subject.by_budget.items():
        audit = build(config, subject.dataset, replays=False)
        rates = rates or rates_of(audit, rough=True)
        times[budget] = estimate(audit, rates=rates, rough=True).most
    chosen = times[subject.config.budget]
    table = ", ".join(f"{budget} {describe(seconds)}" for budget, seconds in times.items())
    level = "note" if chosen > LONG else "ok"
    do = "give fewer clients, smaller pictures, or set `budget = quick`; a GPU is 10 to 100 times as fast"
    yield Finding(
        topic="time",
        level=level,
        what=f"at most about, on this machine: {table}",
        why=f"the {subject.config.budget} budget is chosen" if chosen > LONG else "",
        do=do if chosen > LONG else "",
    )


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
