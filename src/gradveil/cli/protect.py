"""`gradveil protect` and `gradveil train-extractor`: from options to encoded pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._help import DATA_OPTION, DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET, SEED
from gradveil.cli.audit import METHOD, option

WHAT, HOW, OUT = option("What is encoded"), option("How it is computed"), option("What comes out")
LEARN = option("How it is trained")


def protect(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Pictures to encode: {PICTURES}.", show_default=False)],
    defense: Annotated[
        str, WHAT("Defense that encodes every picture: ats, loda or one of their presets.", metavar=METHOD)
    ],
    out: Annotated[Path, OUT("Folder to write to; the folder of an interrupted run is continued.", metavar="DIR")],
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    seed: Annotated[int, HOW(SEED)] = 0,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the encoding; tf32 is faster on a GPU and less exact, bf16 (loda only)"
            " more so (default float32).",
            metavar="float32|tf32|bf16",
        ),
    ] = "float32",
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Encode a data set before training: write DIR/encoded.npz, a manifest and a sheet of samples.

    If the data has a train and a test part, the train part is encoded (unless --data-option split=test).

    [bold]Examples[/bold]

    gradveil protect pictures/ --defense ats:3-1-7 --out encoded

    gradveil train-extractor public/ --out extractor.safetensors

    gradveil protect pictures/ --defense loda-1:extractor=resnet18:extractor.safetensors,public=public/ --out encoded

    gradveil audit --data encoded/encoded.npz   [dim]how much the encoded pictures leak[/dim]
    """
    from gradveil.cli.protect_run import compute_on, protect_and_tell, with_precision

    made_by, compute = with_precision(defense, precision), compute_on(device, precision)
    protect_and_tell(data, data_option or [], made_by, out, seed, compute, quiet)


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
    from gradveil.cli.protect_run import compute_on, train_and_tell
    from gradveil.train.extractor import ExtractorTraining

    schooling = ExtractorTraining(model=model, epochs=epochs, rate=rate, batch_size=batch_size, seed=seed)
    train_and_tell(data, data_option or [], schooling, out, compute_on(device, "float32"), quiet)
