"""`gradveil train-generator`: the networks that ROG's attacker prepares on public pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._help import DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET
from gradveil.cli.audit import option

WHAT, LEARN = option("What it is trained on"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = f"Public pictures: {PICTURES}, each with options of its own; repeatable."


def train_generator(
    kind: Annotated[str, typer.Argument(metavar="autoencoder|enhancer", help="Network to train.", show_default=False)],
    data: Annotated[list[str], WHAT(DATA, metavar="DATA[:k=v,...]")],
    out: Annotated[Path, OUT("File to write the weights to, with their provenance.", metavar="FILE.safetensors")],
    data_option: Annotated[
        list[str] | None,
        WHAT("One option for every data set that has it, such as root=DIR; repeatable.", metavar=PAIR_FORM),
    ] = None,
    skip: Annotated[
        int,
        WHAT(
            "Leave out the first N pictures of each data set (those to be attacked) and pictures "
            "that look like them. A data set's own skip=N overrides it (default 0)."
        ),
    ] = 0,
    size: Annotated[int, WHAT("Side in pixels that all pictures are resized to (default 128).")] = 128,
    channels: Annotated[int, WHAT("Color channels: 3 for color, 1 for gray (default 3).")] = 3,
    latent: Annotated[int, LEARN("autoencoder: numbers in a code (default 2048).")] = 2048,
    noise: Annotated[
        float | None,
        LEARN("enhancer: largest standard deviation of the noise added to pictures in [0, 1] (default 0.1)."),
    ] = None,
    adversarial: Annotated[float | None, LEARN("enhancer: weight of the discriminator's loss (default 0.005).")] = None,
    width: Annotated[int | None, LEARN("Channels of the outermost level (default 64; enhancer 48).")] = None,
    epochs: Annotated[int, LEARN("Passes over the pictures (default 200).")] = 200,
    seconds: Annotated[
        float | None,
        LEARN(
            "End the training after this many seconds; the learning rate has fallen by then (default: no limit).",
            metavar="SECONDS",
        ),
    ] = None,
    batch_size: Annotated[int, LEARN("Pictures in a step (default 32).")] = 32,
    rate: Annotated[float | None, LEARN("Highest learning rate (default 6e-4; enhancer 4e-4).")] = None,
    seed: Annotated[
        int, LEARN("Random seed; the same seed gives the same weights, except with --seconds (default 0).")
    ] = 0,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the training; bf16 is faster on a GPU and less exact (default float32).",
            metavar="bf16|float32",
        ),
    ] = "float32",
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train an autoencoder or an enhancer for the attack `rog`. Run the same command again to resume.

    [bold]Examples[/bold]

    gradveil train-generator autoencoder --data public/ --latent 2048 --out autoencoder.safetensors

    gradveil train-generator enhancer --data pictures.zip:label=name,skip=64 --data utkface:root=faces.zip
    --seconds 120 --device cuda --precision bf16 --out enhancer.safetensors
    """
    from gradveil.cli.train_generator_run import Order, train_and_tell

    order = Order(
        kind=kind,
        data=tuple(data),
        data_options=tuple(data_option or ()),
        skip=skip,
        size=size,
        channels=channels,
        latent=latent,
        noise=noise,
        adversarial=adversarial,
        width=width,
        epochs=epochs,
        seconds=seconds,
        batch_size=batch_size,
        rate=rate,
        seed=seed,
    )
    train_and_tell(order, out, device, precision, quiet)
