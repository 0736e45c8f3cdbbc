"""`gradveil protect` and `gradveil train-extractor`: from options to encoded pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli.audit import METHOD, option

WHAT, HOW, OUT = option("What is encoded"), option("How it is computed"), option("What comes out")
LEARN = option("How it is trained")
DATA = "A name, a folder of class folders, .zip or .npz."


def protect(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA, show_default=False)],
    defense: Annotated[str, WHAT("What is done to every picture: ats or loda.", metavar=METHOD)],
    out: Annotated[Path, OUT("A new folder, or one to go on with.", metavar="DIR")],
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    seed: Annotated[int, HOW("Of what is drawn; same seed, same result (default 0).")] = 0,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[
        str, HOW("tf32 is faster and rounds more; bf16, for loda, faster still.", metavar="float32|tf32|bf16")
    ] = "float32",
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Encode a data set picture by picture, before any training: DIR/encoded.npz, a manifest, a sheet.

    Of data with a train and a test part the train part is taken, unless --data-option split=test.

    [bold]Examples[/bold]

    gradveil protect pictures/ --defense ats:3-1-7 --out encoded

    gradveil train-extractor public/ --out extractor.safetensors

    gradveil protect pictures/ --defense loda-1:extractor=resnet18:extractor.safetensors,public=public/ --out encoded

    gradveil audit --data encoded/encoded.npz   [dim]what the encodings leak of themselves[/dim]
    """
    from gradveil.cli.protect_run import compute_on, protect_and_tell, with_precision

    made_by, compute = with_precision(defense, precision), compute_on(device, precision)
    protect_and_tell(data, data_option or [], made_by, out, seed, compute, quiet)


def train_extractor(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Public pictures. {DATA}", show_default=False)],
    out: Annotated[Path, OUT("The weights, with where they come from.", metavar="FILE.safetensors")],
    model: Annotated[str, LEARN("A name (default resnet18).")] = "resnet18",
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    epochs: Annotated[int, LEARN("(default 30)")] = 30,
    rate: Annotated[float, LEARN("The first learning rate (default 0.1).")] = 0.1,
    batch_size: Annotated[int, LEARN("(default 128)")] = 128,
    seed: Annotated[int, LEARN("Same seed, same weights (default 0).")] = 0,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Train the network whose features LODA keeps, on public pictures, and store it as safetensors.

    [bold]Examples[/bold]

    gradveil train-extractor cifar100 --data-option root=data --out extractor.safetensors --device cuda

    gradveil train-extractor public/ --data-option size=32 --model lenet --epochs 10 --out extractor.safetensors
    """
    from gradveil.cli.protect_run import compute_on, train_and_tell
    from gradveil.train.extractor import Schooling

    schooling = Schooling(model=model, epochs=epochs, rate=rate, batch_size=batch_size, seed=seed)
    train_and_tell(data, data_option or [], schooling, out, compute_on(device, "float32"), quiet)
