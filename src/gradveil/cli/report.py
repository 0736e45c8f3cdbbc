"""`gradveil report`: the page of a run, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="DIR", show_default=False)],
    redact: Annotated[bool, typer.Option("--redact", help="Leave out all pictures, names and paths.")] = False,
) -> None:
    """Make the report of a run again, from its journal.

    [bold]Examples[/bold]

    gradveil report runs/photos-lenet-20250101-120000

    gradveil report runs/photos-lenet-20250101-120000 --redact   [dim]without pictures, names and paths[/dim]
    """
    from gradveil.errors import ConfigError
    from gradveil.report.build import write_report

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    typer.echo(write_report(folder, redact=redact))
