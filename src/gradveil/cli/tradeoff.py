"""`gradveil tradeoff`: from options to a plot of accuracy against leakage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gradveil.cli.audit import METHOD, option

WHAT, TRAINING = option("What is compared"), option("How it is trained")
ATTACKS, HOW, OUT = option("How it is attacked"), option("How it is computed"), option("What comes out")


def tradeoff(
    model: Annotated[str | None, WHAT("A name, or path/to/file.py:factory (default lenet).")] = None,
    data: Annotated[str | None, WHAT("A name, a folder of class folders, .zip or .npz (default photos).")] = None,
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    defense: Annotated[
        list[str] | None, WHAT("A defense, with one or several strengths; may be repeated.", metavar="NAME[:k=v,v,...]")
    ] = None,
    noise: Annotated[
        list[float] | None, WHAT("A scale of the noise baseline; may be repeated (default 1e-3, 3e-3, 1e-2).")
    ] = None,
    match: Annotated[int | None, WHAT("Further scales, per defense, to meet its accuracy (default 1).")] = None,
    random_policies: Annotated[int | None, WHAT("Random policies as a baseline (default 1).")] = None,
    seeds: Annotated[int | None, TRAINING("Trainings of every defense (default 3).")] = None,
    rounds: Annotated[int | None, TRAINING("Rounds (default 40).")] = None,
    clients: Annotated[int | None, TRAINING("Clients (default 10).")] = None,
    per_round: Annotated[int | None, TRAINING("Clients drawn for a round, 0 for all (default 5).")] = None,
    split: Annotated[str | None, TRAINING("(default dirichlet:0.5)", metavar="iid|dirichlet:ALPHA|classes:N")] = None,
    method: Annotated[str | None, TRAINING("(default fedavg)", metavar="fedsgd|fedavg|fedprox")] = None,
    local_epochs: Annotated[int | None, TRAINING("Of a client in a round (default 1).")] = None,
    batch_size: Annotated[int | None, TRAINING("Of a local step (default 32).")] = None,
    rate: Annotated[float | None, TRAINING("Learning rate (default 1).")] = None,
    momentum: Annotated[float | None, TRAINING("(default 0)")] = None,
    bn: Annotated[
        str | None, TRAINING("How clients normalize (default eval).", metavar="eval|batch|batch-shared")
    ] = None,
    images: Annotated[int | None, ATTACKS("Victims, from the clients' own pictures (default 16).")] = None,
    victim_batch: Annotated[int | None, ATTACKS("Pictures of a victim (default 1).")] = None,
    stage: Annotated[
        list[float] | None, ATTACKS("Share of the training at which models are attacked; may be repeated.")
    ] = None,
    attacked_seeds: Annotated[int | None, ATTACKS("Trainings whose models are attacked (default 1).")] = None,
    attack: Annotated[
        list[str] | None, ATTACKS("An attack; may be repeated (default autoattack).", metavar=METHOD)
    ] = None,
    budget: Annotated[str | None, ATTACKS("(default quick)", metavar="quick|standard|thorough")] = None,
    metric: Annotated[list[str] | None, ATTACKS("A metric besides psnr, ssim and retrieval.", metavar="NAME")] = None,
    lpips_weights: Annotated[str | None, ATTACKS("AlexNet's LPIPS weights, an .npz file.", metavar="FILE")] = None,
    measure: Annotated[
        str | None, ATTACKS("What the plot calls leakage (default psnr).", metavar="psnr|ssim|lpips|leaked")
    ] = None,
    seed: Annotated[int | None, HOW("Same seed, same result (default 0).")] = None,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[str, HOW("tf32 is faster and rounds more.", metavar="float32|tf32")] = "float32",
    workers: Annotated[int | None, HOW("Processes, one thread each (default: one per core; 0: this process).")] = None,
    ray: Annotated[str, HOW("Use a Ray cluster: local is one of our own.", metavar="ADDRESS|auto|local")] = "",
    seconds: Annotated[float | None, HOW("Begin nothing new after so many; the same command goes on.")] = None,
    out: Annotated[
        Path | None, OUT("A new folder, or that of a study to go on with (default runs/tradeoff-...).", metavar="DIR")
    ] = None,
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Train and attack the same model under many defenses: accuracy against leakage, and whether noise does as well.

    [bold]Examples[/bold]

    gradveil tradeoff   [dim]built-in photographs, LeNet, 10 points and matched noise: 3 to 4 minutes on two cores[/dim]

    gradveil tradeoff --defense prune:ratio=0.9,0.99 --defense ats:policy.json --seeds 5 --images 64 --budget standard

    gradveil tradeoff --data cifar10 --data-option root=DIR --model convnet --clients 100 --per-round 10 --rounds 100
    """
    from gradveil.cli.tradeoff_run import compute_for, default_folder, run_and_tell, study_of

    given = {
        "model": model, "data": data, "defenses": defense, "noise": noise, "match": match,
        "random_policies": random_policies, "seeds": seeds, "rounds": rounds, "clients": clients,
        "per_round": per_round, "split": split, "method": method, "local_epochs": local_epochs,
        "batch_size": batch_size, "rate": rate, "momentum": momentum, "batchnorm": bn, "images": images,
        "victim_batch": victim_batch, "stages": stage, "attacked_seeds": attacked_seeds, "attacks": attack,
        "budget": budget, "lpips_weights": lpips_weights, "measure": measure, "seed": seed,
    }  # fmt: skip
    study = study_of(given, data_option or [], metric or [])
    compute = compute_for(device, precision, workers, ray)
    run_and_tell(study, out or default_folder(study), compute, seconds, quiet)
