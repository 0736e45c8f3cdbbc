"""`gradveil reproduce-cell`: does one trial of a run come out again?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def reproduce_cell(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN", show_default=False)],
    trial: Annotated[str, typer.Option("--trial", help="Its key, as `gradveil table` prints it.", metavar="KEY")],
    model: Annotated[
        str, typer.Option("--model", help="path/to/file.py:factory, if the run's model is your own.", metavar="FILE")
    ] = "",
    device: Annotated[
        str | None, typer.Option("--device", help="Where (default: as the run).", metavar="auto|cpu|cuda")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read the tensors of a pickled weights file, as the run did.")
    ] = False,
) -> None:
    """Compute one trial of a run again and compare every score, and the pictures bit by bit.

    Exit code 0: identical, or within 0.1 dB as on another device; 1: it came out otherwise.

    [bold]Examples[/bold]

    gradveil reproduce-cell runs/photos-lenet-20250101-120000 --trial photos-lenet-b1/none/dlg/unaware/c0003/0

    gradveil reproduce-cell runs/mine --trial digits-mine.py_build-b1/none/dlg/unaware/c0003/0 --model mine.py:build
    """
    from gradveil.cli.options import compute_of
    from gradveil.config.reproduce import as_the_run, reproduce
    from gradveil.core.errors import ConfigError
    from gradveil.core.progress import listening
    from gradveil.experiment.folder import RunFolder
    from gradveil.experiment.progress import for_stream
    from gradveil.models.weights import pickles_allowed

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder, give the folder of a run")
    how = as_the_run(RunFolder(folder).stored())
    checked = compute_of(device or how.device, how.precision, how.backend, how.chunk)
    shown = for_stream(quiet=False)
    shown.begin(1)
    try:
        with pickles_allowed(allow_pickle), listening(shown.step):
            comparison = reproduce(folder, trial, checked, model)
    finally:
        shown.end()
    typer.echo(comparison.told)
    raise typer.Exit(0 if comparison.agrees else 1)
