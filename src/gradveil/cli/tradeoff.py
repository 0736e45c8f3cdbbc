"""`gradveil tradeoff`: from options to a plot of accuracy against leakage."""

from __future__ import annotations

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
    NORMALIZE,
    NORMALIZE_FORM,
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

WHAT, TRAINING = option("What is compared"), option("How it is trained")
ATTACKS, HOW, OUT = option("How it is attacked"), option("How it is computed"), option("What comes out")


def tradeoff(
    model: Annotated[
        str | None, WHAT(f"Model to train and attack: {MODEL} (default lenet).", metavar=MODEL_FORM)
    ] = None,
    normalize: Annotated[str | None, WHAT(f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = None,
    data: Annotated[
        str | None, WHAT(f"Pictures to train on: {PICTURES} (default photos).", metavar=PICTURES_FORM)
    ] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    defense: Annotated[
        list[str] | None,
        WHAT(
            "Defense to compare, with one strength or several, such as prune:ratio=0.9,0.99; "
            "repeatable (default: four defenses).",
            metavar="NAME[:k=v,v,...]",
        ),
    ] = None,
    noise: Annotated[
        list[float] | None,
        WHAT(
            "Scale of the Gaussian noise that serves as the baseline; repeatable (default 1e-3, 3e-3 and 1e-2).",
            metavar="SCALE",
        ),
    ] = None,
    match: Annotated[
        int | None,
        WHAT("Number of further noise scales to train per defense, to match the defense's accuracy (default 1)."),
    ] = None,
    random_policies: Annotated[
        int | None, WHAT("Number of random transformation policies to train as a baseline (default 1).")
    ] = None,
    seeds: Annotated[
        int | None, TRAINING("Number of trainings of every defense, each with its own seed (default 3).")
    ] = None,
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
    images: Annotated[
        int | None, ATTACKS("Number of victims to attack, taken from the clients' own pictures (default 16).")
    ] = None,
    victim_batch: Annotated[int | None, ATTACKS("Pictures per victim (default 1).")] = None,
    stage: Annotated[
        list[float] | None,
        ATTACKS(
            "Share of the training after which models are attacked, 0 to 1; repeatable (default 0.1 and 1).",
            metavar="SHARE",
        ),
    ] = None,
    attacked_seeds: Annotated[int | None, ATTACKS("Number of trainings whose models are attacked (default 1).")] = None,
    attack: Annotated[
        list[str] | None,
        ATTACKS("Attack to run (`gradveil list attacks`); repeatable (default autoattack).", metavar=METHOD),
    ] = None,
    budget: Annotated[
        str | None,
        ATTACKS("How many steps and restarts attacks use (default quick).", metavar="quick|standard|thorough"),
    ] = None,
    metric: Annotated[
        list[str] | None, ATTACKS("A metric to compute besides psnr, ssim and retrieval; repeatable.", metavar="NAME")
    ] = None,
    lpips_weights: Annotated[
        str | None,
        ATTACKS("AlexNet's LPIPS weights, .npz or .safetensors; the metric lpips needs them.", metavar="FILE"),
    ] = None,
    measure: Annotated[
        str | None,
        ATTACKS("The measure of leakage that the plot shows (default psnr).", metavar="METRIC|leaked"),
    ] = None,
    seed: Annotated[int | None, HOW(SEED)] = None,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of trainings and attacks; tf32 is faster on a GPU and less exact (default float32).",
            metavar="float32|tf32",
        ),
    ] = "float32",
    workers: Annotated[int | None, HOW(WORKERS)] = None,
    ray: Annotated[str, HOW(RAY, metavar="ADDRESS|auto|local")] = "",
    seconds: Annotated[
        float | None,
        HOW("Start no new work after this many seconds. Run the same command again to resume.", metavar="SECONDS"),
    ] = None,
    out: Annotated[
        Path | None,
        OUT(
            "Folder of the study; the folder of an interrupted study is continued (default runs/tradeoff-...).",
            metavar="DIR",
        ),
    ] = None,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train one model under many defenses, attack each, and compare accuracy and leakage with those of plain noise.

    [bold]Examples[/bold]

    gradveil tradeoff   [dim]built-in photographs, LeNet, 10 points and matched noise: 3 to 4 minutes on 2 cores[/dim]

    gradveil tradeoff --defense prune:ratio=0.9,0.99 --defense ats:policy.json --seeds 5 --images 64 --budget standard

    gradveil tradeoff --data cifar10 --data-option root=DIR --model convnet --clients 100 --per-round 10 --rounds 100
    """
    from gradveil.cli._options import check_out, compute_on_all_cores, drop_missing
    from gradveil.core.choice import parse_pairs
    from gradveil.core.errors import ConfigError
    from gradveil.experiment.experiment import default_folder
    from gradveil.experiment.folder import REPORT
    from gradveil.experiment.progress import for_stream
    from gradveil.tradeoff.settings import StudySettings, check_settings
    from gradveil.tradeoff.study import RESULT
    from gradveil.tradeoff.study import tradeoff as run_study
    from gradveil.tradeoff.summary import columns, rows, sentences

    given = {
        "model": model, "normalize": normalize, "data": data, "defenses": defense, "noise": noise, "match": match,
        "random_policies": random_policies, "seeds": seeds, "rounds": rounds, "clients": clients,
        "per_round": per_round, "split": split, "method": method, "local_epochs": local_epochs,
        "batch_size": batch_size, "rate": rate, "momentum": momentum, "batchnorm": bn, "images": images,
        "victim_batch": victim_batch, "stages": stage, "attacked_seeds": attacked_seeds, "attacks": attack,
        "budget": budget, "lpips_weights": lpips_weights, "measure": measure, "seed": seed,
    }  # fmt: skip
    metrics = tuple(dict.fromkeys([*StudySettings().metrics, *(metric or ())]))
    options = parse_pairs(data_option or [], "--data-option")
    settings = StudySettings(**drop_missing(given), metrics=metrics, data_options=options)
    check_settings(settings)
    if precision not in ("float32", "tf32"):
        raise ConfigError(f"must be float32 or tf32 for training, got {precision}", key="precision")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"must be above 0, got {seconds}", key="seconds")
    compute = compute_on_all_cores(device, precision, workers, ray)
    folder = out or default_folder("tradeoff", settings.data, settings.model, settings.to_tables())
    check_out(folder)
    outcome = run_study(settings, folder, compute=compute, progress=for_stream(quiet), seconds=seconds)
    if not quiet:
        print_summary(columns(outcome), rows(outcome), sentences(outcome))
        typer.echo(f"page: {folder / REPORT}, numbers: {folder / RESULT}")
