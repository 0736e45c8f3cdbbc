"""`gradveil verify`: is a run still as it was when it was finished?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SHOWN = 16  # digits of the id


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
) -> None:
    """Check that no byte of a finished run has changed.

    [bold]Examples[/bold]

    gradveil verify runs/photos-lenet-20250101-120000

    [dim]Compare the id with one that you noted elsewhere: anyone who can write to the folder can seal it again.[/dim]
    """
    from gradveil.core.errors import ConfigError
    from gradveil.experiment.seal import find_changes, read_seal

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    if problems := find_changes(folder):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{folder}/{problems[0]}{more}")
    seal = read_seal(folder)
    typer.echo(f"{len(seal.files)} files unchanged since {seal.sealed}, id {seal.id[:SHOWN]}")
