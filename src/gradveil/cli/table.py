"""`gradveil table`: the records of a run as CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def table(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="New file to write the table to (default: print it).", metavar="FILE", show_default=False
        ),
    ] = None,
) -> None:
    """Print the records of a run as CSV, one line per picture and attack.

    [bold]Examples[/bold]

    gradveil table runs/photos-lenet-20250101-120000

    gradveil table runs/photos-lenet-20250101-120000 --out scores.csv
    """
    from gradveil.audit.table import as_csv
    from gradveil.core.errors import ConfigError
    from gradveil.experiment import journal

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    records = journal.read(folder / "journal.jsonl")
    if not records:
        raise ConfigError(f"{folder}: no finished trial in journal.jsonl, give the folder of a run")
    content = as_csv(records).encode()
    if out is None:
        typer.echo(content, nl=False)  # bytes: the same on every terminal as in a file
        return
    if out.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"--out: {out} lies in the folder of the run, which is sealed, choose a place outside")
    write_new(out, content)


def write_new(path: Path, content: bytes) -> None:
    """A file that was not there before, for its owner alone; none at all if it cannot be written whole."""
    from gradveil.core.errors import ConfigError

    try:
        file = open(path, "xb", opener=lambda p, flags: os.open(p, flags, 0o600))  # noqa: SIM115
    except FileExistsError as error:
        raise ConfigError(f"--out: {path} exists, choose another name") from error
    except OSError as error:
        raise ConfigError(f"--out: {path} cannot be made, {error.strerror}, choose another place") from error
    try:
        with file:
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"--out: {path} cannot be written, {error.strerror}, choose another place") from error
