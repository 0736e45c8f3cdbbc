"""`gradveil train`: from options to a trained model and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gradveil.cli.audit import METHOD, option

WHAT, WHO = option("What is trained"), option("Who trains")
STEPS, HOW, OUT = option("How they train"), option("How it is computed"), option("What comes out")


def train(
    model: Annotated[str, WHAT("A name, or path/to/file.py:factory (default lenet).")] = "lenet",
    data: Annotated[str, WHAT("A name, a folder of class folders, .zip or .npz (default photos).")] = "photos",
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    defense: Annotated[str, WHAT("What clients do to their updates (default none).", metavar=METHOD)] = "none",
    clients: Annotated[int, WHO("How many (default 10).")] = 10,
    per_round: Annotated[int | None, WHO("Drawn for each round (default all).")] = None,
    split: Annotated[str, WHO("Whose pictures are whose (default iid).", metavar="iid|dirichlet:A|classes:K")] = "iid",
    topology: Annotated[str, WHO("With or without a server (default central).", metavar="central|gossip")] = "central",
    neighbors: Annotated[
        str, WHO("Who talks to whom in gossip (default ring).", metavar="ring|complete|random:K")
    ] = "ring",
    method: Annotated[str, STEPS("(default fedavg)", metavar="fedsgd|fedavg|fedprox")] = "fedavg",
    rounds: Annotated[int | None, STEPS("(default 20)")] = None,
    epochs: Annotated[int | None, STEPS("Passes over all pictures, instead of --rounds; for fedsgd.")] = None,
    local_epochs: Annotated[int, STEPS("Of a client in a round; not fedsgd (default 1).")] = 1,
    batch_size: Annotated[int, STEPS("Pictures of a client's step (default 16).")] = 16,
    rate: Annotated[float, STEPS("Learning rate (default 0.05).")] = 0.05,
    momentum: Annotated[float, STEPS("Of the clients, with fedsgd of the server (default 0.9).")] = 0.9,
    nesterov: Annotated[bool, STEPS("Nesterov's momentum.", "--nesterov")] = False,
    weight_decay: Annotated[float, STEPS("(default 0)")] = 0.0,
    decay: Annotated[bool, STEPS("The rate falls tenfold at 3/8, 5/8 and 7/8.", "--decay")] = False,
    proximal: Annotated[float, STEPS("Pull of fedprox (default 0.01).")] = 0.01,
    augment: Annotated[bool, STEPS("Random crops and flips.", "--augment")] = False,
    error_feedback: Annotated[
        bool, STEPS("Clients add next time what the defense kept from being sent.", "--error-feedback")
    ] = False,
    bn: Annotated[
        str, STEPS("How clients normalize (default batch-shared).", metavar="eval|batch|batch-shared")
    ] = "batch-shared",
    seed: Annotated[int, HOW("Same seed, same result (default 0).")] = 0,
    engine: Annotated[str, HOW("In this process, or by Flower (default local).", metavar="local|flower")] = "local",
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[
        str, HOW("tf32 and bf16 are faster and round more.", metavar="float32|tf32|bf16|float64")
    ] = "float32",
    chunk: Annotated[int | None, HOW("Clients at once where they are stacked.")] = None,
    checkpoints: Annotated[str, OUT("So many, evenly spaced, or rounds (default 4).", metavar="N|R,R,...")] = "4",
    evaluate_every: Annotated[int | None, OUT("Rounds between accuracies (default: twenty of them).")] = None,
    out: Annotated[Path | None, OUT("A new folder, or that of a run to go on with.", metavar="DIR")] = None,
    delta: Annotated[
        float | None, OUT("Of the epsilon of dpsgd and fedcdp; below 1 / pictures (default 1e-5).")
    ] = None,
    as_json: Annotated[bool, OUT("Print a summary as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Train a model with federated clients under a defense, and keep checkpoints to audit.

    [bold]Examples[/bold]

    gradveil train   [dim]built-in photographs, LeNet, ten clients, twenty rounds: seconds[/dim]

    gradveil train --defense prune:ratio=0.9 --split dirichlet:0.5 --per-round 5 --rounds 50 --out runs/pruned

    gradveil train --model resnet20-4 --data cifar100 --data-option root=DATA --method fedsgd --epochs 200
    --batch-size 32 --rate 0.2 --nesterov --weight-decay 5e-4 --decay --augment --precision bf16 --device cuda

    [dim]The same command goes on where it stopped. gradveil list defenses|models|data tells the names.[/dim]
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
