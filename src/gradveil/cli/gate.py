"""`gradveil gate`: the verdict of a finished run as an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._fail_on import ANY, FORM, KNOWN


def gate(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    fail_on: Annotated[
        str,
        typer.Option("--fail-on", help=f"Verdicts that fail, of {KNOWN} (default: the first three).", metavar=FORM),
    ] = ANY,
) -> None:
    """Judge a finished run again from its journal, and print one line. Nothing is written.

    Exit code 0: passed. 1: a defense has one of the verdicts that fail. 2: not a finished run, or changed since.

    [bold]Examples[/bold]

    gradveil gate runs/photos-lenet-20250101-120000

    gradveil gate runs/photos-lenet-20250101-120000 --fail-on leaks   [dim]doubts do not fail[/dim]

    gradveil gate runs/photos-lenet-20250101-120000 --fail-on linkable   [dim]an update may not name its picture[/dim]
    """
    from gradveil.audit.results import read_run
    from gradveil.audit.verdict import judge
    from gradveil.cli._fail_on import exit_if_failed, parse_fail_on
    from gradveil.cli.verify import require_unchanged

    words = parse_fail_on(fail_on)
    require_unchanged(folder)
    verdict = judge(read_run(folder))
    exit_if_failed(verdict, words)
    typer.echo(f"passed: {verdict.word}, under {verdict.under}")
