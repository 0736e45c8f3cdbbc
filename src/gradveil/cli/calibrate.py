"""`gradveil calibrate`: from options to the least strength that is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._help import (
    DATA_OPTION,
    DEVICE,
    DEVICE_FORM,
    MODEL,
    MODEL_FORM,
    NORMALIZATION,
    PAIR_FORM,
    PICTURES,
    PICTURES_FORM,
    QUIET,
    SEED,
    WORKERS,
)
from gradveil.cli._output import print_summary
from gradveil.cli.audit import METHOD, option

WHAT, HOW, OUT = option("What is calibrated"), option("How it is computed"), option("What comes out")


def calibrate(
    defense: Annotated[
        str,
        WHAT(
            "Defense to calibrate (`gradveil list defenses`), without the option that is its strength.", metavar=METHOD
        ),
    ],
    named_at_most: Annotated[
        float | None,
        WHAT("Largest share of the pictures that the line-up may name; 0.01 is 1 % (default 0.05).", metavar="SHARE"),
    ] = None,
    lineup: Annotated[
        int | None,
        WHAT(
            "Number of candidates, the true picture included (default 1001, or 10 divided by the share where every "
            "strength needs a line-up of its own)."
        ),
    ] = None,
    standins: Annotated[
        int | None,
        WHAT(
            "Number of gallery pictures that take a client's place, for each class among the clients: more make the "
            "interval narrower (default: enough to show the share)."
        ),
    ] = None,
    model: Annotated[str | None, WHAT(f"Model: {MODEL} (default lenet).", metavar=MODEL_FORM)] = None,
    weights: Annotated[
        str | None,
        WHAT("Weights of the model, a .safetensors file (default: random weights, untrained).", metavar="FILE"),
    ] = None,
    data: Annotated[str | None, WHAT(f"Clients' pictures: {PICTURES} (default photos).", metavar=PICTURES_FORM)] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    images: Annotated[int | None, WHAT("Number of clients (default 8).")] = None,
    batch_size: Annotated[int | None, WHAT("Pictures per client (default 1).")] = None,
    local_steps: Annotated[
        int | None, WHAT("Training steps of a client in a round: 1 is FedSGD, 2 or more is FedAvg (default 1).")
    ] = None,
    local_rate: Annotated[float | None, WHAT("Learning rate of the local steps (default 1).")] = None,
    bn: Annotated[str | None, WHAT(f"{NORMALIZATION} (default eval).", metavar="eval|batch|batch-shared")] = None,
    seed: Annotated[int | None, HOW(SEED)] = None,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    workers: Annotated[int | None, HOW(WORKERS)] = None,
    out: Annotated[
        Path | None,
        OUT(
            "Folder of the calibration; the folder of an interrupted one is continued (default runs/calibrate-...).",
            metavar="DIR",
        ),
    ] = None,
    as_json: Annotated[bool, OUT("Print the result as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Find the least strength of a defense at which its updates name few enough pictures among candidates.

    [bold]Examples[/bold]

    gradveil calibrate --defense gaussian   [dim]built-in photographs, LeNet: the noise that hides 95 % of them[/dim]

    gradveil calibrate --defense dpsgd:clip=0.5 --named-at-most 0.01 --data pictures/ --weights w.safetensors

    gradveil calibrate --defense prune --batch-size 4 --json   [dim]no ratio is enough: exit code 0[/dim]
    """
    from gradveil.calibrate.calibrate import RESULT
    from gradveil.calibrate.calibrate import calibrate as run_calibration
    from gradveil.calibrate.settings import CalibrationSettings, check_settings
    from gradveil.calibrate.summary import columns, rows, sentences
    from gradveil.cli._options import check_out, compute_on_all_cores, drop_missing
    from gradveil.core.choice import parse_pairs
    from gradveil.experiment.experiment import default_folder
    from gradveil.experiment.folder import REPORT
    from gradveil.experiment.progress import for_stream

    given = {
        "named_at_most": named_at_most, "lineup": lineup, "standins": standins, "model": model, "weights": weights,
        "data": data, "images": images, "batch_size": batch_size, "local_steps": local_steps,
        "local_rate": local_rate, "batchnorm": bn, "seed": seed,
    }  # fmt: skip
    options = parse_pairs(data_option or [], "--data-option")
    settings = CalibrationSettings(defense=defense, data_options=options, **drop_missing(given))
    check_settings(settings)
    compute = compute_on_all_cores(device, "float32", workers, "")
    folder = out or default_folder("calibrate", settings.data, settings.model, settings.to_tables())
    check_out(folder)
    outcome = run_calibration(settings, folder, compute=compute, progress=for_stream(quiet or as_json))
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "report": str(folder / REPORT)} | outcome.to_json(), indent=2))
    elif not quiet:
        print_summary(columns(outcome.found), rows(outcome.found), sentences(outcome))
        typer.echo(f"page: {folder / REPORT}, numbers: {folder / RESULT}")
