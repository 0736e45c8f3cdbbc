"""`gradveil verify`: is a run still as it was when it was finished?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._output import print_to_stderr

if TYPE_CHECKING:
    from gradveil.experiment.seal import Seal

SHOWN = 16  # digits of the id
NOT_PROVEN = 1  # exit code


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    key: Annotated[
        Path | None,
        typer.Option(
            help="Also check the signature of the run with this ed25519 key, public or private.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help=f"Also compare the run's id with one that you noted elsewhere, at least {SHOWN} digits of it.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check that no byte of a finished run has changed.

    Exit code 0: unchanged. 1: unchanged, but only since it was sealed again. 2: changed, or not sealed.

    [bold]Examples[/bold]

    gradveil verify runs/photos-lenet-20250101-120000

    gradveil verify runs/photos-lenet-20250101-120000 --id 0123456789abcdef   [dim]an id that you noted[/dim]

    gradveil verify runs/photos-lenet-20250101-120000 --key key.pub   [dim]a run that was signed[/dim]

    [dim]Whoever can write to the folder can seal it again: only an id noted elsewhere or a signature holds then.[/dim]
    """
    seal = require_unchanged(folder)
    require_id(seal, id)
    signer = _signer(folder, seal, key)
    typer.echo(f"{len(seal.files)} files unchanged since {seal.sealed}, id {seal.id[:SHOWN]}{signer}")
    _tell_events(folder, seal, proven=bool(key or id))


def require_id(seal: Seal, id: str | None) -> None:
    """Refuse a run that is not the one whose id was noted."""
    from gradveil.core.errors import ConfigError

    if id is None:
        return
    if not re.fullmatch(rf"[0-9a-fA-F]{{{SHOWN},64}}", id):
        raise ConfigError(f"must be {SHOWN} to 64 hexadecimal digits, got {id!r}", key="id")
    if not seal.id.startswith(id.lower()):
        raise ConfigError(f"the run has {seal.id[: len(id)]}: it is another run, or was sealed again since", key="id")


def _signer(folder: Path, seal: Seal, key: Path | None) -> str:
    from gradveil.experiment.signature import check_signature

    return "" if key is None else f", signed with key {check_signature(folder, seal, key)}"


def _tell_events(folder: Path, seal: Seal, proven: bool) -> None:
    """When a lost seal was replaced. It fails unless an id or a signature of the user's vouches for the new one."""
    from gradveil.experiment.reseal import read_events

    if events := read_events(folder, seal.files):
        print_to_stderr(f"{'note' if proven else 'not proven'}: {'; '.join(events)}, see the flag sealed-again")
        if not proven:
            raise typer.Exit(NOT_PROVEN)


def require_unchanged(folder: Path) -> Seal:
    """The seal of a finished run, of which no byte has changed."""
    from gradveil.core.errors import ConfigError
    from gradveil.experiment.seal import find_changes, read_seal

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    if problems := find_changes(folder):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(f"{folder}/{problems[0]}{more}")
    return read_seal(folder)
