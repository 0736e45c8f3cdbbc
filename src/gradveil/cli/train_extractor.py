"""`gradveil train-extractor`: the network whose features LODA keeps, trained on public pictures."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._help import DATA_OPTION, DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET, SEED
from gradveil.cli._networks import check_file
from gradveil.cli.audit import option

if TYPE_CHECKING:
    from torch import Tensor

WHAT, LEARN = option("What is encoded"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")


def train_extractor(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Public pictures: {PICTURES}.", show_default=False)],
    out: Annotated[Path, OUT("File to write the weights to, with their provenance.", metavar="FILE.safetensors")],
    model: Annotated[
        str, LEARN("Name of the model to train (`gradveil list models`; default resnet18).", metavar="NAME")
    ] = "resnet18",
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    epochs: Annotated[int, LEARN("Passes over the pictures (default 30).")] = 30,
    rate: Annotated[float, LEARN("Initial learning rate (default 0.1).")] = 0.1,
    batch_size: Annotated[int, LEARN("Pictures in a step (default 128).")] = 128,
    seed: Annotated[int, LEARN(SEED)] = 0,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train the feature extractor that LODA uses, on public pictures, and write it as .safetensors.

    [bold]Examples[/bold]

    gradveil train-extractor cifar100 --data-option root=data --out extractor.safetensors --device cuda

    gradveil train-extractor public/ --data-option size=32 --model lenet --epochs 10 --out extractor.safetensors
    """
    from gradveil.cli._options import compute_of
    from gradveil.core.choice import parse_pairs
    from gradveil.train.data import load_training_part
    from gradveil.train.extractor import ExtractorTraining, store_extractor, train_extractor

    training = ExtractorTraining(model=model, epochs=epochs, rate=rate, batch_size=batch_size, seed=seed)
    compute = compute_of(device, "float32", "auto", None)
    check_file(out)
    dataset = load_training_part(data, parse_pairs(data_option or [], "data_options"))

    def on_epoch(epoch: int, loss: Tensor) -> None:
        if not quiet:
            print(f"epoch {epoch} of {epochs}, loss {loss.item():.3f}", file=sys.stderr)

    with compute.active():
        network, right = train_extractor(dataset, training, compute.device, on_epoch)
    store_extractor(network, dataset, training, right, out)
    if not quiet:
        how = ", ".join(f"{name} {value}" for name, value in asdict(training).items())
        typer.echo(f"{how}: {right:.1%} of {dataset.name}'s held-out pictures are put into their class")
        typer.echo(f"use it as extractor={model}:{out}")
