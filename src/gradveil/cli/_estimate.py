"""How long an audit will take: `--dry-run`, and the question before a run of hours."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from gradveil.cli._output import print_summary, print_to_stderr
from gradveil.core.time_limit import show_time

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit
    from gradveil.audit.estimate import Estimate
    from gradveil.config import AuditConfig
    from gradveil.core.compute import Compute

COLUMNS = ("part", "at least", "at most")
WORTH_A_LINE, LONG = 60.0, 3600.0  # seconds
CHEAPER = (
    "cheaper: --budget quick, fewer --images, one --defense at a time, smaller pictures (--data-option size=64), "
    "a GPU (--device cuda), more machines (--ray)"
)


def print_estimate(config: AuditConfig, by_budget: Mapping[str, AuditConfig], compute: Compute, as_json: bool) -> None:
    """The whole run by its parts, and what it would take with each budget. Writes nothing."""
    from gradveil.audit.estimate import estimate, rates_of
    from gradveil.config import build

    audit = build(config)
    rates = rates_of(audit)
    found = estimate(audit, compute, rates)
    budgets = {name: estimate(build(one), compute, rates) for name, one in by_budget.items()}
    if as_json:
        times = {name: {"least": one.least, "most": one.most} for name, one in budgets.items()}
        typer.echo(json.dumps(found.to_json() | {"budgets": times}, indent=2))
        return
    rows = [(part.name, show_time(part.least), show_time(part.most)) for part in found.parts]
    total = ("whole run", show_time(found.least), show_time(found.most))
    line = "; ".join(f"{name} {describe(one)}" for name, one in budgets.items())
    print_summary(COLUMNS, [*rows, total], [f"by --budget: {line}", *([CHEAPER] if found.most > LONG else [])])


def confirm_long_run(audit: Audit, compute: Compute, yes: bool) -> None:
    """A line above a minute; above an hour also the cheaper ways and, on a terminal, a question."""
    from gradveil.audit.estimate import estimate

    if estimate(audit, compute, rough=True).most <= WORTH_A_LINE:
        return
    found = estimate(audit, compute)
    if found.most > WORTH_A_LINE:
        print_to_stderr(f"this audit takes {describe(found)} on this machine")
    if found.least <= LONG:
        return
    print_to_stderr(CHEAPER)
    if sys.stdin.isatty() and sys.stderr.isatty() and not yes and not typer.confirm("Start it?", err=True):
        raise typer.Exit(0)


def describe(found: Estimate) -> str:
    least, most = show_time(found.least), show_time(found.most)
    return f"about {least}" if least == most else f"{least} to {most}"
