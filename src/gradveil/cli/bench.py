"""`gradveil bench`: how fast the engine is here, and how strong the attacks are."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gradveil.cli._help import DEVICE_FORM
from gradveil.cli.bench_strength import strength

bench = typer.Typer(
    help="Measure the speed of the attack engine and the strength of the attacks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
bench.add_typer(strength, name="strength")


@bench.callback()
def common() -> None: ...


@bench.command()
def engine(
    model: Annotated[str, typer.Option(help="Name of a model (`gradveil list models`).", metavar="NAME")] = "lenet",
    images: Annotated[int, typer.Option(min=1, help="Number of victims to attack at once.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Number of attack steps to time.")] = 20,
    device: Annotated[
        str, typer.Option(help="Where to compute; auto takes a GPU if there is one.", metavar=DEVICE_FORM)
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="Arithmetic of the attack; tf32 is faster on a GPU and less exact.", metavar="float32|tf32|float64"
        ),
    ] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Time one step of the default attack: all victims at once, compared with one at a time.

    [bold]Examples[/bold]

    gradveil bench engine

    gradveil bench engine --model resnet20-4 --images 100 --device cuda --precision tf32 --json
    """
    from gradveil.cli._options import compute_of
    from gradveil.core.errors import unknown
    from gradveil.models import MODELS

    compute = compute_of(device, precision, "auto", None)
    if model not in MODELS:
        raise unknown("model", model, MODELS, "--model")
    from gradveil.bench.engine import run

    result = run(model=model, victims=images, steps=steps, device=compute.device, precision=compute.precision)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")
