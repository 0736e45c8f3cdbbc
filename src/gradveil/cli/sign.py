"""`gradveil sign`: a signature over a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.verify import SHOWN


def sign(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    key: Annotated[
        Path,
        typer.Option(
            help="Your private ed25519 key, PEM or OpenSSH, without a passphrase.", metavar="FILE", show_default=False
        ),
    ],
) -> None:
    """Sign a finished run with a key of yours. Needs the extra `sign`.

    The signature covers the id of the seal, and with it every byte of the run. Make the report as you want to keep
    it first: `gradveil report` seals the run again.

    [bold]Examples[/bold]

    openssl genpkey -algorithm ed25519 -out key.pem   [dim]or ssh-keygen -t ed25519[/dim]

    gradveil sign runs/photos-lenet-20250101-120000 --key key.pem

    gradveil verify runs/photos-lenet-20250101-120000 --key key.pem
    """
    from gradveil.cli.verify import require_unchanged
    from gradveil.experiment import signature

    seal = require_unchanged(folder)
    fingerprint = signature.sign(folder, seal, key)
    typer.echo(f"signed id {seal.id[:SHOWN]} with key {fingerprint}")
