"""`gradveil report`: verdict and page of a run, made again from its folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave pictures, names and paths out of the report.")
    ] = False,
    claim: Annotated[
        float | None,
        typer.Option(
            help="Test the claim that at most this share of such pictures leaks; 0.01 is 1 %.",
            metavar="SHARE",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--watch", help="Of a run that is at work: write the page again as results come, until the run ends."
        ),
    ] = False,
) -> None:
    """Write the verdict and the report of a run again, from its journal.

    [bold]Examples[/bold]

    gradveil report runs/photos-lenet-20250101-120000

    gradveil report runs/photos-lenet-20250101-120000 --redact   [dim]without pictures, names and paths[/dim]

    gradveil report runs/photos-lenet-20250101-120000 --watch   [dim]while the audit runs[/dim]

    gradveil report runs/photos-lenet-20250101-120000 --claim 0.01   [dim]test "at most 1 % leaks"[/dim]
    """
    from gradveil.cli._options import check_claim
    from gradveil.core.errors import ConfigError
    from gradveil.report.conclude import conclude, watch

    check_claim(claim)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    for verdict in watch(folder, redact, claim) if follow else ():
        typer.echo(f"{datetime.now():%H:%M:%S} verdict: {verdict.word}")
    if not follow:
        conclude(folder, redact=redact, claim=claim)
    typer.echo(folder / "report.html")
