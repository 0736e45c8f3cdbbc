"""`gradveil bench`: how fast the engine is here, against one victim at a time."""

from __future__ import annotations

import json
from typing import Annotated

import typer

bench = typer.Typer(help="Measure the engine on this machine.", no_args_is_help=True, rich_markup_mode="rich")


@bench.callback()
def common() -> None: ...


@bench.command()
def engine(
    model: Annotated[str, typer.Option(help="A model of `gradveil list models`.")] = "lenet",
    images: Annotated[int, typer.Option(min=1, help="Victims at once.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Steps to time.")] = 20,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, tf32 or float64.")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time one step of the default attack, all victims at once against one at a time.

    [bold]Examples[/bold]

    gradveil bench engine

    gradveil bench engine --model resnet20-4 --images 100 --device cuda --precision tf32 --json
    """
    from gradveil.cli.options import compute_of
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
