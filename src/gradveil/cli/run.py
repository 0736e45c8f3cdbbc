"""Run an audit, judge it, make its report, and say in a few lines what came out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.audit.update_match import MATCH
from gradveil.audit.verdict import Verdict, as_json
from gradveil.audit.verdict.estimate import CellResult, Estimate
from gradveil.audit.verdict.leak import CLOSENESS
from gradveil.config import AuditConfig, build
from gradveil.config.checkpoint import on_changed_model
from gradveil.core.compute import Compute
from gradveil.core.metric import FED, Facts
from gradveil.experiment import progress
from gradveil.report.conclude import conclude
from gradveil.report.scores import list_metrics

COLUMNS = ("defense", "attack", "attacker", "attempted", "failed", "leaked", "identified")
MOST_REASONS = 3
INCONCLUSIVE = 3


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the user wants to see."""

    redact: bool = False
    as_json: bool = False
    quiet: bool = False
    claim: float | None = None
    strict: bool = False


def run_and_report(config: AuditConfig, folder: Path, compute: Compute, output: Output) -> None:
    audit = build(config)
    if not output.quiet and (said := on_changed_model(audit.scenario.model, audit.defenses)):
        print(said, file=sys.stderr)
    run_audit(audit, folder, compute, progress.for_stream(output.quiet))
    verdict = conclude(folder, redact=output.redact, claim=output.claim)
    if output.as_json:
        told = {"folder": str(folder), "report": str(folder / "report.html")}
        typer.echo(json.dumps(told | as_json(read_run(folder), verdict, output.claim), indent=2))
    elif not output.quiet:
        print_cells([cell for cell in verdict.cells if not cell.control])
        print_matches(verdict.cells)
        print_failures(verdict.cells)
        print_verdict(verdict)
        typer.echo(f"report: {folder / 'report.html'}")
    if output.strict and any(f.verdict in ("inconclusive", "not evaluated") for f in verdict.judged):
        raise typer.Exit(INCONCLUSIVE)


def columns(metrics: Sequence[Facts]) -> list[str]:
    """The first metric in full, of the others the worst picture."""
    names = [f"{one.label} worst" for one in metrics]
    return [*COLUMNS, *names[:1], *(["mean", "95 % CI"] if names else []), *names[1:]]


def texts(cell: CellResult, metrics: Sequence[Facts]) -> list[str]:
    """One cell for people, below `columns`."""
    found = [
        "-" if MATCH.name in cell.metrics else str(cell.leaked),
        "-" if cell.identified is None else str(cell.identified),
    ]
    each = [_measured(cell.metrics.get(one.name), one, in_full=one is metrics[0]) for one in metrics]
    own = [cell.defense, cell.attack, cell.attacker, str(cell.attempted), str(cell.failed)]
    return [*own, *found, *(text for texts in each for text in texts)]


def _measured(value: Estimate | None, facts: Facts, in_full: bool) -> list[str]:
    if value is None:
        return ["-"] * (3 if in_full else 1)
    worst, mean = (f"{number:.{facts.digits}f}" for number in (value.worst, value.mean))
    low, high = (None if end is None else f"{end:.{facts.digits}f}" for end in (value.low, value.high))
    return [worst, mean, "-" if low is None else f"{low} to {high}"] if in_full else [worst]


def print_cells(found: Sequence[CellResult]) -> None:
    """A table for each scenario: regimes are never mixed."""
    names = {name for cell in found for name in cell.metrics if not name.endswith(FED)} | {CLOSENESS.name}
    metrics = [one for one in list_metrics(names, found[0].facts) if not one.lookup] if found else []
    scenarios = dict.fromkeys(cell.scenario for cell in found)
    for scenario in scenarios:
        if len(scenarios) > 1:
            typer.echo(scenario)
        print_table(columns(metrics), [texts(cell, metrics) for cell in found if cell.scenario == scenario])


def print_table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Boxed on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*names)
        for line in lines:
            table.add_row(*map(escape, line))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(names, *lines, strict=True)]
    for line in (names, *lines):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_matches(found: Sequence[CellResult]) -> None:
    """Without originals: how well each attack explains the updates received, and how well without having seen them."""
    for cell in (cell for cell in found if not cell.control and MATCH.name in cell.metrics):
        blind = [c for c in found if (c.scenario, c.attack, c.control) == (cell.scenario, cell.attack, "prior")]
        without = [c.metrics[MATCH.name].worst for c in blind if MATCH.name in c.metrics]
        told = f", {without[0]:.3f} without the update" if without else ""
        who = f"{cell.scenario}, {cell.defense}, {cell.attack}, {cell.attacker}"
        typer.echo(f"{who}: updates match up to {cell.metrics[MATCH.name].worst:.3f}{told}")


def print_failures(found: Sequence[CellResult]) -> None:
    """A failed trial is not a protected picture: say why, the most frequent reasons first."""
    reasons = Counter(record.reason for cell in found for record in cell.records if record.status == "failed")
    for reason, count in reasons.most_common(MOST_REASONS):
        typer.echo(f"{count} trials failed: {''.join(c if c.isprintable() else ' ' for c in reason)}")
    if len(reasons) > MOST_REASONS:
        typer.echo(f"{len(reasons) - MOST_REASONS} more reasons are in the report")


def print_verdict(verdict: Verdict) -> None:
    """Each defense with its word and why; the positive control, which they all rest on."""
    control = verdict.positive
    typer.echo(f"positive control: {control.said if control else 'none in this run'}")
    for finding in verdict.findings:
        tally = finding.tally
        where = f" ({tally.scenario})" if tally.role == "variation" else ""
        typer.echo(f"{tally.defense}{where}: {finding.verdict}. {' '.join(finding.reasons)}")
    typer.echo(f"verdict: {verdict.word}, under {verdict.under}")
    if verdict.flags:
        typer.echo(f"flags: {', '.join(verdict.flags)}")
