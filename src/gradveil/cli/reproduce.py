"""`gradveil reproduce-cell`: does one trial of a run come out again?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._help import DEVICE_FORM


def reproduce_cell(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN", show_default=False)],
    trial: Annotated[
        str, typer.Option("--trial", help="Key of the trial, as `gradveil table` prints it.", metavar="KEY")
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="The model, if the run's model is a Python file of yours; the file is executed.",
            metavar="FILE.py:FACTORY",
        ),
    ] = "",
    loss: Annotated[
        str,
        typer.Option(
            "--loss",
            help="The loss, if the run's loss is in a Python file of yours; the file is executed.",
            metavar="FILE.py:NAME",
        ),
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="Where to compute (default: the run's device).", metavar=DEVICE_FORM)
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also accept weights in a pickle file, as the run did.")
    ] = False,
) -> None:
    """Compute one trial of a run again; compare every score, and the pictures bit by bit.

    Exit code 0: identical, or equal within rounding (as on another device). 1: different.

    [bold]Examples[/bold]

    gradveil reproduce-cell runs/photos-lenet-20250101-120000 --trial photos-lenet-b1/none/dlg/unaware/c0003/0

    gradveil reproduce-cell runs/mine --trial digits-mine.py_build-b1/none/dlg/unaware/c0003/0 --model mine.py:build
    """
    from gradveil.cli._options import compute_of
    from gradveil.config.reproduce import as_the_run, reproduce
    from gradveil.core.errors import ConfigError
    from gradveil.core.progress import listening
    from gradveil.experiment.folder import RunFolder
    from gradveil.experiment.progress import for_stream
    from gradveil.models.weights import allow_pickles

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    how = as_the_run(RunFolder(folder).read_provenance())
    checked = compute_of(device or how.device, how.precision, how.backend, how.chunk)
    shown = for_stream(quiet=False)
    shown.begin(1)
    try:
        with allow_pickles(allow_pickle), listening(shown.step):
            comparison = reproduce(folder, trial, checked, model, loss)
    finally:
        shown.end()
    typer.echo(comparison.summary)
    raise typer.Exit(0 if comparison.agrees else 1)
