"""`gradveil train`: from options to a trained model and its checkpoints."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    OPTIMIZERS,
    PAIR_FORM,
    PICTURES,
    PICTURES_FORM,
    QUIET,
    SEED,
)
from gradveil.cli.audit import METHOD, option
from gradveil.core.errors import ConfigError

if TYPE_CHECKING:
    from gradveil.train.run import Training
    from gradveil.train.settings import TrainSettings
    from gradveil.train.state import Trained

WHAT, WHO = option("What is trained"), option("Who trains")
STEPS, HOW, OUT = option("How they train"), option("How it is computed"), option("What comes out")


def train(
    model: Annotated[str, WHAT(f"Model to train: {MODEL} (default lenet).", metavar=MODEL_FORM)] = "lenet",
    normalize: Annotated[str, WHAT(f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = "auto",
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
    optimizer: Annotated[
        str, STEPS("Optimizer of the clients' steps, as in torch.optim (default sgd).", metavar=OPTIMIZERS)
    ] = "sgd",
    clip_gradients: Annotated[
        float, STEPS("Largest norm of the gradient of a client's step; 0: no clipping (default 0).")
    ] = 0.0,
    label_smoothing: Annotated[float, STEPS("Label smoothing of the clients' loss, 0 to 1 (default 0).")] = 0.0,
    dropout: Annotated[str, STEPS("Whether clients draw dropout masks (default off).", metavar="off|on")] = "off",
    momentum: Annotated[
        float | None,
        STEPS("Momentum, 0 to 1, of the clients' optimizer; with fedsgd of the server's (default 0.9 with sgd)."),
    ] = None,
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
    epsilon_at_most: Annotated[
        float | None,
        OUT(
            "Privacy budget: the training ends before the round that would raise the epsilon of a picture (with clip "
            "and gaussian or local-dp: of a client) above this value (default: no limit).",
            metavar="EPSILON",
        ),
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
    from gradveil.cli._options import check_out, compute_of
    from gradveil.train.settings import Federation, TrainSettings

    check_out(out)
    if epochs is not None and rounds is not None:
        raise ConfigError("replaces `rounds`, leave one of them out", key="epochs")
    momentum = (0.9 if optimizer == "sgd" else 0.0) if momentum is None else momentum
    words: Any = {
        "topology": topology,
        "method": method,
        "batchnorm": bn,
        "optimizer": optimizer,
        "dropout": dropout,
    }  # checked by the library
    federation = Federation(
        clients=clients, per_round=per_round, rounds=20 if rounds is None else rounds, split=split,
        neighbors=neighbors, local_epochs=local_epochs, batch_size=batch_size, rate=rate, momentum=momentum,
        nesterov=nesterov, weight_decay=weight_decay, decay=decay, proximal=proximal, augment=augment,
        clip_gradients=clip_gradients, label_smoothing=label_smoothing, error_feedback=error_feedback, seed=seed,
        **words,
    )  # fmt: skip
    words = {"engine": engine, "precision": precision}
    settings = TrainSettings(
        model=model, normalize=normalize, data=data, data_options=tuple(data_option or ()), defense=defense,
        federation=federation,
        epochs=epochs, checkpoints=read_checkpoints(checkpoints), evaluate_every=evaluate_every, device=device,
        chunk=chunk, delta=delta, epsilon_at_most=epsilon_at_most, **words,
    )  # fmt: skip
    compute_of(device, "float32", "auto", chunk)  # whether the device is there
    run_and_print(settings, out, as_json=as_json, quiet=quiet)


def read_checkpoints(text: str) -> int | tuple[int, ...]:
    """`4`: a number of checkpoints; `10,50`: rounds.

    >>> read_checkpoints("4"), read_checkpoints("1,20")
    (4, (1, 20))
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"must be a number, or rounds such as 10,50,100, got {text[:50]!r}", key="checkpoints")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))


def run_and_print(settings: TrainSettings, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    from gradveil.train.run import RoundProgress, prepare_training

    training = prepare_training(settings, out)
    if training.privacy is not None and not (quiet or as_json):
        print(training.privacy, file=sys.stderr)  # before the minutes are spent
    if training.stop is not None and not (quiet or as_json):
        print(f"privacy: {training.stop}", file=sys.stderr)
    progress = RoundProgress(training.rounds, quiet or as_json)
    try:
        trained = simulate(training) if settings.engine == "flower" else training.run(progress.round)
    finally:
        progress.end()
    if as_json:
        typer.echo(json.dumps(trained.to_json(training.folder, training.privacy), indent=2))
    elif not quiet:
        for line in summary(trained, training):
            typer.echo(line)


def simulate(training: Training) -> Trained:
    from gradveil.flower.train import simulate

    return simulate(training)


def summary(trained: Trained, training: Training) -> list[str]:
    """The result for people, line by line."""
    lines = [f"note: {note}" for note in trained.notes]
    if void := sum(one.void for one in trained.curve):
        lines.append(f"{void} of {len(trained.curve)} rounds were void: no client sent finite numbers")
    if dropped := sum(one.dropped for one in trained.curve):
        names = sorted({name for one in trained.curve for name in one.names})
        first = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        lines.append(f"{dropped} replies were left out since they were not finite: {first}")
    lines.append(accuracy_line(trained))
    if training.privacy is not None:
        lines.append(str(training.privacy))
    lines.append(f"folder: {training.folder}")
    if trained.checkpoints:
        lines.append("checkpoints: " + ", ".join(path.name for path in trained.checkpoints.values()))
        lines.append(f"go on with: {audit_command(training.settings, next(iter(trained.checkpoints.values())))}")
    return lines


def accuracy_line(trained: Trained) -> str:
    if trained.accuracy is None:
        return "accuracy: not measured"
    last = trained.curve[-1]
    worst = "" if last.worst is None else f", of the worst node {100 * last.worst:.1f} %"
    return f"accuracy: {100 * trained.accuracy:.1f} % after {len(trained.curve)} rounds{worst}"


def audit_command(settings: TrainSettings, weights: Path) -> str:
    """The audit of a checkpoint, on the same data, model and defense."""
    options = [part for option in settings.data_options for part in ("--data-option", option)]
    audited = ["--data", settings.data, *options, "--model", settings.model, "--defense", settings.defense]
    audited += [] if settings.normalize == "auto" else ["--normalize", settings.normalize]
    return shlex.join(["gradveil", "audit", *audited, "--weights", str(weights)])
