"""`gradveil recommend`: from options to what to deploy."""

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
    RAY,
    SEED,
    WORKERS,
)
from gradveil.cli._output import print_summary
from gradveil.cli.audit import METHOD, option

WHAT, TRAINING = option("What is recommended"), option("How it is trained")
ATTACKS, HOW, OUT = option("How it is attacked"), option("How it is computed"), option("What comes out")


def recommend(
    named_at_most: Annotated[
        float | None,
        WHAT("Largest share of the pictures that the line-up may name; 0.01 is 1 % (default 0.05).", metavar="SHARE"),
    ] = None,
    spare: Annotated[
        float | None, WHAT("Accuracy that may be lost, in percentage points (default 5).", metavar="POINTS")
    ] = None,
    defense: Annotated[
        list[str] | None,
        WHAT(
            "Defense to consider, without the option that is its strength; repeatable (default: all that apply, and "
            "some stacks).",
            metavar=METHOD,
        ),
    ] = None,
    model: Annotated[str | None, WHAT(f"Model: {MODEL} (default lenet).", metavar=MODEL_FORM)] = None,
    data: Annotated[
        str | None, WHAT(f"Pictures to train on: {PICTURES} (default photos).", metavar=PICTURES_FORM)
    ] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    lineup: Annotated[int | None, WHAT("Number of candidates, the true picture included (default 501).")] = None,
    standins: Annotated[
        int | None,
        WHAT("Number of pictures that take a victim's place, for each class among the victims (default 32)."),
    ] = None,
    seeds: Annotated[int | None, TRAINING("Number of trainings of every defense (default 5).")] = None,
    rounds: Annotated[int | None, TRAINING("Rounds of a training (default 40).")] = None,
    clients: Annotated[int | None, TRAINING("Number of clients (default 10).")] = None,
    per_round: Annotated[
        int | None, TRAINING("Number of clients drawn for each round; 0 takes all (default 5).")
    ] = None,
    split: Annotated[
        str | None,
        TRAINING(
            "How pictures are divided among clients (default dirichlet:0.5).", metavar="iid|dirichlet:ALPHA|classes:N"
        ),
    ] = None,
    method: Annotated[
        str | None, TRAINING("Training algorithm (default fedavg).", metavar="fedsgd|fedavg|fedprox")
    ] = None,
    local_epochs: Annotated[
        int | None, TRAINING("Passes of a client over its pictures in a round (default 1).")
    ] = None,
    batch_size: Annotated[int | None, TRAINING("Pictures in a local step (default 32).")] = None,
    rate: Annotated[float | None, TRAINING("Learning rate (default 1).")] = None,
    momentum: Annotated[float | None, TRAINING("Momentum of the optimizer, 0 to 1 (default 0).")] = None,
    bn: Annotated[str | None, TRAINING(f"{NORMALIZATION} (default eval).", metavar="eval|batch|batch-shared")] = None,
    winners: Annotated[
        int | None, ATTACKS("Number of defenses to attack, the most accurate first (default 1).")
    ] = None,
    images: Annotated[
        int | None, ATTACKS("Number of victims, taken from the clients' own pictures (default 16).")
    ] = None,
    victim_batch: Annotated[int | None, ATTACKS("Pictures per victim (default 1).")] = None,
    attack: Annotated[
        list[str] | None,
        ATTACKS("Attack to run (`gradveil list attacks`); repeatable (default autoattack).", metavar=METHOD),
    ] = None,
    budget: Annotated[
        str | None,
        ATTACKS("How many steps and restarts attacks use (default quick).", metavar="quick|standard|thorough"),
    ] = None,
    seed: Annotated[int | None, HOW(SEED)] = None,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    workers: Annotated[int | None, HOW(WORKERS)] = None,
    ray: Annotated[str, HOW(RAY, metavar="ADDRESS|auto|local")] = "",
    seconds: Annotated[
        float | None,
        HOW("Start no new work after this many seconds. Run the same command again to resume.", metavar="SECONDS"),
    ] = None,
    out: Annotated[
        Path | None,
        OUT(
            "Folder of the recommendation; an interrupted one is continued (default runs/recommend-...).",
            metavar="DIR",
        ),
    ] = None,
    as_json: Annotated[bool, OUT("Print the result as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Say which defense to deploy at which strength, what it costs in accuracy, and what its updates still contain.

    [bold]Examples[/bold]

    gradveil recommend   [dim]built-in photographs, LeNet: what hides 95 % of the pictures[/dim]

    gradveil recommend --named-at-most 0.01 --spare 2 --data pictures/ --model convnet32 --rounds 100

    gradveil recommend --defense dpsgd:clip=0.5 --defense gaussian --winners 2 --budget standard
    """
    from gradveil.cli._options import check_out, compute_on_all_cores, drop_missing
    from gradveil.core.choice import parse_pairs
    from gradveil.core.errors import ConfigError
    from gradveil.experiment.experiment import default_folder
    from gradveil.experiment.folder import REPORT
    from gradveil.experiment.progress import for_stream
    from gradveil.recommend.recommend import RESULT
    from gradveil.recommend.recommend import recommend as run_recommendation
    from gradveil.recommend.settings import RecommendSettings, check_settings
    from gradveil.recommend.summary import COLUMNS, left_out, rows

    given = {
        "named_at_most": named_at_most, "spare": spare, "defenses": defense, "model": model, "data": data,
        "lineup": lineup, "standins": standins, "seeds": seeds, "rounds": rounds, "clients": clients,
        "per_round": per_round, "split": split, "method": method, "local_epochs": local_epochs,
        "batch_size": batch_size, "rate": rate, "momentum": momentum, "batchnorm": bn, "winners": winners,
        "images": images, "victim_batch": victim_batch, "attacks": attack, "budget": budget, "seed": seed,
    }  # fmt: skip
    options = parse_pairs(data_option or [], "--data-option")
    settings = RecommendSettings(**drop_missing(given), data_options=options)
    check_settings(settings)
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"must be above 0, got {seconds}", key="seconds")
    compute = compute_on_all_cores(device, "float32", workers, ray)
    folder = out or default_folder("recommend", settings.data, settings.model, settings.to_tables())
    check_out(folder)
    advice = run_recommendation(
        settings, folder, compute=compute, progress=for_stream(quiet or as_json), seconds=seconds
    )
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "report": str(folder / REPORT)} | advice.to_json(), indent=2))
    elif not quiet:
        print_summary(COLUMNS, rows(advice), [*left_out(advice), *advice.sentences])
        typer.echo(f"page: {folder / REPORT}, numbers: {folder / RESULT}")
