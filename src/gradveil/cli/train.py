"""`gradveil train`: from options to a trained model and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
)
from gradveil.cli.audit import METHOD, option

WHAT, WHO = option("What is trained"), option("Who trains")
STEPS, HOW, OUT = option("How they train"), option("How it is computed"), option("What comes out")


def train(
    model: Annotated[str, WHAT(f"Model to train: {MODEL} (default lenet).", metavar=MODEL_FORM)] = "lenet",
    data: Annotated[str, WHAT(f"Pictures to train on: {PICTURES} (default photos).", metavar=PICTURES_FORM)] = "photos",
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    defense: Annotated[
        str, WHAT("Defense that every client applies (`gradveil list defenses`; default none).", metavar=METHOD)
    ] = "none",
    clients: Annotated[int, WHO("Number of clients (default 10).")] = 10,
    per_round: Annotated[int | None, WHO("Number of clients drawn for each round (default: all).")] = None,
    split: Annotated[
        str, WHO("How pictures are divided among clients (default iid).", metavar="iid|dirichlet:ALPHA|classes:N")
    ] = "iid",
    topology: Annotated[
        str,
        WHO(
            "central has a server; in gossip clients average with their neighbors (default central).",
            metavar="central|gossip",
        ),
    ] = "central",
    neighbors: Annotated[
        str, WHO("Which clients are neighbors in gossip (default ring).", metavar="ring|complete|random:N")
    ] = "ring",
    method: Annotated[str, STEPS("Training algorithm (default fedavg).", metavar="fedsgd|fedavg|fedprox")] = "fedavg",
    rounds: Annotated[int | None, STEPS("Number of rounds (default 20).")] = None,
    epochs: Annotated[
        int | None, STEPS("With fedsgd, instead of --rounds: number of passes over all pictures.")
    ] = None,
    local_epochs: Annotated[
        int, STEPS("Passes of a client over its pictures in a round; fedavg and fedprox only (default 1).")
    ] = 1,
    batch_size: Annotated[int, STEPS("Pictures in a client's step (default 16).")] = 16,
    rate: Annotated[float, STEPS("Learning rate (default 0.05).")] = 0.05,
    momentum: Annotated[
        float, STEPS("Momentum, 0 to 1, of the clients' optimizer; with fedsgd of the server's (default 0.9).")
    ] = 0.9,
    nesterov: Annotated[bool, STEPS("Use Nesterov momentum.", "--nesterov")] = False,
    weight_decay: Annotated[float, STEPS("Weight decay of the optimizer, from 0 (default 0).")] = 0.0,
    decay: Annotated[
        bool, STEPS("Divide the learning rate by 10 after 3/8, 5/8 and 7/8 of the training.", "--decay")
    ] = False,
    proximal: Annotated[float, STEPS("Weight of fedprox's proximal term (default 0.01).")] = 0.01,
    augment: Annotated[bool, STEPS("Crop and flip pictures at random.", "--augment")] = False,
    error_feedback: Annotated[
        bool, STEPS("Clients add what the defense removed from an update to their next update.", "--error-feedback")
    ] = False,
    bn: Annotated[
        str, STEPS(f"{NORMALIZATION} (default batch-shared).", metavar="eval|batch|batch-shared")
    ] = "batch-shared",
    seed: Annotated[int, HOW(SEED)] = 0,
    engine: Annotated[
        str,
        HOW(
            "Simulate the clients in this process, or as Flower clients in processes of their own (default local).",
            metavar="local|flower",
        ),
    ] = "local",
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the training; tf32 and bf16 are faster on a GPU and less exact (default float32).",
            metavar="float32|tf32|bf16|float64",
        ),
    ] = "float32",
    chunk: Annotated[
        int | None,
        HOW(
            "Number of clients to compute at once, where clients are computed together (default: chosen automatically)."
        ),
    ] = None,
    checkpoints: Annotated[
        str,
        OUT(
            "Number of checkpoints, evenly spaced, or the rounds after which to write them (default 4).",
            metavar="N|ROUND,ROUND,...",
        ),
    ] = "4",
    evaluate_every: Annotated[
        int | None, OUT("Rounds from one measurement of accuracy to the next (default: about 20 measurements).")
    ] = None,
    out: Annotated[
        Path | None,
        OUT(
            "Folder of the training; that of an interrupted training is continued (default runs/train-...).",
            metavar="DIR",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        OUT("Delta of the epsilon reported for dpsgd and fedcdp; choose it below 1 / pictures (default 1e-5)."),
    ] = None,
    as_json: Annotated[bool, OUT("Print a summary as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train a model by federated learning under a defense, and write checkpoints that can be audited.

    [bold]Examples[/bold]

    gradveil train   [dim]built-in photographs, LeNet, 10 clients, 20 rounds: some seconds[/dim]

    gradveil train --defense prune:ratio=0.9 --split dirichlet:0.5 --per-round 5 --rounds 50 --out runs/pruned

    gradveil train --model resnet20-4 --data cifar100 --data-option root=DATA --method fedsgd --epochs 200
    --batch-size 32 --rate 0.2 --nesterov --weight-decay 5e-4 --decay --augment --precision bf16 --device cuda

    [dim]Run the same command again to resume. gradveil list defenses|models|data prints the names.[/dim]
    """
    from gradveil.cli.train_asked import Asked
    from gradveil.cli.train_run import run_and_tell

    asked = Asked(
        model=model,
        data=data,
        data_options=tuple(data_option or ()),
        defense=defense,
        rounds=rounds,
        epochs=epochs,
        checkpoints=checkpoints,
        evaluate_every=evaluate_every,
        engine=engine,
        device=device,
        precision=precision,
        chunk=chunk,
        delta=delta,
        federation={
            "clients": clients, "per_round": per_round, "split": split, "topology": topology, "neighbors": neighbors,
            "method": method, "local_epochs": local_epochs, "batch_size": batch_size, "rate": rate,
            "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay, "decay": decay,
            "proximal": proximal, "augment": augment, "error_feedback": error_feedback, "batchnorm": bn, "seed": seed,
        },
    )  # fmt: skip
    run_and_tell(asked, out, as_json=as_json, quiet=quiet)
