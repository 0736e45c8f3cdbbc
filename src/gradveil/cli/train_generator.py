"""`gradveil train-generator`: the networks that ROG's attacker prepares on public pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.audit import option

WHAT, LEARN = option("What it is trained on"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = "Public pictures: a name, a folder of class folders, .zip or .npz, each with options; may be repeated."
SKIP = "Leave out the first N pictures of each data set, those that will be attacked, and what looks like them."


def train_generator(
    kind: Annotated[str, typer.Argument(metavar="autoencoder|enhancer", help="What to train.", show_default=False)],
    data: Annotated[list[str], WHAT(DATA, metavar="DATA[:k=v,...]")],
    out: Annotated[Path, OUT("The weights, with where they come from.", metavar="FILE.safetensors")],
    data_option: Annotated[
        list[str] | None, WHAT("An option of all data sets that know it; may be repeated.", metavar="K=V")
    ] = None,
    skip: Annotated[int, WHAT(SKIP + " A data set may say skip=N itself.")] = 0,
    size: Annotated[int, WHAT("All pictures are brought to this size (default 128).")] = 128,
    channels: Annotated[int, WHAT("3 for color (default), 1 for gray.")] = 3,
    latent: Annotated[int, LEARN("Of an autoencoder: numbers in a code (default 2048).")] = 2048,
    noise: Annotated[float | None, LEARN("Of an enhancer: largest deviation of the noise (default 0.1).")] = None,
    adversarial: Annotated[float | None, LEARN("Of an enhancer: weight of the discriminator (default 0.005).")] = None,
    width: Annotated[int | None, LEARN("Channels of the outermost level (default 64; enhancer 48).")] = None,
    epochs: Annotated[int, LEARN("(default 200)")] = 200,
    seconds: Annotated[float | None, LEARN("End after so many, with the rate cooled down by then.")] = None,
    batch_size: Annotated[int, LEARN("(default 32)")] = 32,
    rate: Annotated[float | None, LEARN("The highest learning rate (default 6e-4; enhancer 4e-4).")] = None,
    seed: Annotated[int, LEARN("Same seed, same weights, unless --seconds ends it (default 0).")] = 0,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[str, HOW("bf16 is faster on a GPU (default float32).", metavar="bf16|float32")] = "float32",
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Train an autoencoder to search in, or an enhancer to finish with. Interrupted, it goes on where it was.

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
