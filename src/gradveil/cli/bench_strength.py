"""`gradveil bench strength`: how strong the attacks are, beside each other and beside peers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._output import print_summary, print_to_stderr

if TYPE_CHECKING:
    from gradveil.bench.strength.measure import Strength

SETTINGS = typer.Option(help="Which list of settings: quick, of minutes, or full, of hours.", metavar="quick|full")
PICTURES = typer.Option(
    help="Pictures of a kind (cifar10, faces, xrays, cells) as KIND=PATH; repeatable (default: the built-in "
    "photographs in the place of every kind).",
    metavar="KIND=PATH",
)
ONLY = typer.Option(help="Pattern of names of settings to take, such as 'lenet-*'; repeatable.", metavar="PATTERN")
SEED = typer.Option(min=0, help="Decides pictures, weights and all random numbers.")
FOLDER = typer.Option(help="Folder of the results; what is in it is not computed again.", metavar="DIR")

strength = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")


@strength.callback()
def compare(
    context: typer.Context,
    settings: Annotated[str, SETTINGS] = "quick",
    pictures: Annotated[list[str] | None, PICTURES] = None,
    only: Annotated[list[str] | None, ONLY] = None,
    peer: Annotated[
        list[Path] | None,
        typer.Option(
            help="Reconstructions of another attack, .safetensors or .npz, an array for each setting; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps of the search of autoattack (default 60; of full, as many as take some 15 seconds).",
        ),
    ] = None,
    out: Annotated[Path, FOLDER] = Path("runs/strength"),
    seed: Annotated[int, SEED] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Attack the same updates with every attack for as long as autoattack takes, and compare the pictures.

    The time is that of the processor, all threads together, and at least four seconds. A search gets the steps that
    take so long, by the time of its first ones; closed forms take what they take.

    [bold]Examples[/bold]

    gradveil bench strength

    gradveil bench strength --settings full --pictures cifar10=cifar10.npz --pictures faces=utkface.zip --json

    gradveil bench strength export --out exported   [dim]what a peer needs to take part[/dim]

    gradveil bench strength --peer theirs.safetensors   [dim]the pictures that came back[/dim]
    """
    if context.invoked_subcommand is not None:
        return
    from gradveil.bench.strength.run import TABLE, run
    from gradveil.bench.strength.table import COLUMNS, sentences

    rows = run(choose(settings, pictures, only, steps, seed), out, peer or (), print_to_stderr)
    if as_json:
        typer.echo(json.dumps(json.loads((out / TABLE).read_text()), indent=2))
        return
    print_summary(COLUMNS, [row.cells() for row in rows], sentences(rows))
    typer.echo(f"table: {out / TABLE}")


@strength.command()
def export(
    out: Annotated[Path, typer.Option(help="Folder to write to.", metavar="DIR")],
    settings: Annotated[str, SETTINGS] = "quick",
    pictures: Annotated[list[str] | None, PICTURES] = None,
    only: Annotated[list[str] | None, ONLY] = None,
    seed: Annotated[int, SEED] = 0,
) -> None:
    """Write what the attacker has of each setting, so that another attack can take part: never the pictures.

    A .safetensors file has `model.*`, `update.*` ([client, ...]), `labels` if they are known, and the setting as JSON
    in its metadata: architecture, constants, rate, loss, and the shape of the answer.

    [bold]Examples[/bold]

    gradveil bench strength export --out exported
    """
    from gradveil.bench.strength.run import export as write

    for name in write(choose(settings, pictures, only, None, seed), out):
        typer.echo(str(out / f"{name}.safetensors"))


def choose(settings: str, pictures: list[str] | None, only: list[str] | None, steps: int | None, seed: int) -> Strength:
    """The options as the library wants them."""
    from gradveil.bench.strength.measure import Strength
    from gradveil.bench.strength.settings import SETTINGS as KNOWN
    from gradveil.core.errors import ConfigError

    if settings not in KNOWN:
        raise ConfigError(f"must be quick or full, got {settings!r}", key="settings")
    given = {kind: path for kind, _, path in (text.partition("=") for text in pictures or ())}
    return Strength(
        extent="full" if settings == "full" else "quick", pictures=given, only=tuple(only or ()), steps=steps, seed=seed
    )
