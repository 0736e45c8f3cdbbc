"""Run an audit, make its report, and say in a few lines what came out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from gradveil import journal, progress
from gradveil.audit import run
from gradveil.compute import Compute
from gradveil.config import AuditConfig, build
from gradveil.folder import JOURNAL
from gradveil.report.build import write_report
from gradveil.report.cells import Cell, cells
from gradveil.report.run import read_run

COLUMNS = ("defense", "attack", "attacker", "attempted", "failed", "PSNR max", "median", "mean", "identified")
MOST_REASONS = 3


def run_and_report(
    config: AuditConfig, folder: Path, compute: Compute, *, redact: bool, as_json: bool, quiet: bool
) -> None:
    try:
        run(build(config), folder, compute, progress.for_stream(quiet))
    except KeyboardInterrupt:
        kept = len(journal.read(folder / JOURNAL))
        print(f"interrupted: {kept} trials are kept, go on with --out {folder}", file=sys.stderr)
        raise typer.Exit(130) from None
    page = write_report(folder, redact=redact)
    found = cells(read_run(folder))
    if as_json:
        typer.echo(
            json.dumps({"folder": str(folder), "report": str(page), "cells": [as_row(c) for c in found]}, indent=2)
        )
    elif not quiet:
        print_table(found)
        print_failures(found)
        typer.echo(f"report: {page}")


def as_row(cell: Cell) -> dict[str, Any]:
    """One cell for machines; every score with its spread."""
    names = sorted({name for record in cell.scored for name in record.scores})
    spreads = {name: spread for name in names if (spread := cell.spread(name))}
    return {
        "scenario": cell.scenario,
        "defense": cell.defense,
        "attack": cell.attack,
        "attacker": cell.attacker,
        "attempted": cell.attempted,
        "failed": len(cell.failed),
        "metrics": {
            name: {"max": s.high, "min": s.low, "median": s.median, "mean": s.mean} for name, s in spreads.items()
        },
    }


def texts(cell: Cell) -> list[str]:
    """One cell for people."""
    psnr = cell.spread("psnr")
    decibels = [f"{x:.1f}" for x in (psnr.high, psnr.median, psnr.mean)] if psnr else ["-"] * 3
    identified = "-" if cell.identified is None else f"{cell.identified:.0%}"
    counts = [str(cell.attempted), str(len(cell.failed))]
    return [cell.defense, cell.attack, cell.attacker, *counts, *decibels, identified]


def print_table(found: Sequence[Cell]) -> None:
    """Boxed on a terminal, plain columns elsewhere."""
    lines = [texts(cell) for cell in found]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*COLUMNS)
        for line in lines:
            table.add_row(*map(escape, line))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *lines, strict=True)]
    for line in (COLUMNS, *lines):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_failures(found: Sequence[Cell]) -> None:
    """A failed trial is not a protected picture: say why, the most frequent reasons first."""
    reasons = Counter(record.reason for cell in found for record in cell.failed)
    for reason, count in reasons.most_common(MOST_REASONS):
        typer.echo(f"{count} trials failed: {''.join(c if c.isprintable() else ' ' for c in reason)}")
    if len(reasons) > MOST_REASONS:
        typer.echo(f"{len(reasons) - MOST_REASONS} more reasons are in the report")
