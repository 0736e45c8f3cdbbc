"""`gradveil check-model`: does a model that was sent to us carry planted structure?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli._help import DATA_OPTION, MODEL, MODEL_FORM, NORMALIZE, NORMALIZE_FORM, PAIR_FORM, PICTURES_FORM

if TYPE_CHECKING:
    from gradveil.inspection import Inspection

FOUND = 3  # exit code


def check_model(
    model: Annotated[str, typer.Argument(help=f"Model that was received: {MODEL}.", metavar=MODEL_FORM)],
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights that were received, a .safetensors file (default: random weights, untrained).", metavar="FILE"
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Earlier or agreed model to compare with: a .safetensors file, a name, or a Python "
            "file and a function in it.",
            metavar="FILE|NAME|FILE.py:FACTORY",
        ),
    ] = None,
    reference_weights: Annotated[
        str | None, typer.Option(help="Weights of --reference, if it is a name or a Python file.", metavar="FILE")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Your own pictures, to measure activations: a name, a folder with one folder per "
            "class, a .zip or an .npz file.",
            metavar=PICTURES_FORM,
        ),
    ] = None,
    data_option: Annotated[list[str] | None, typer.Option(help=DATA_OPTION, metavar=PAIR_FORM)] = None,
    normalize: Annotated[str, typer.Option(help=f"{NORMALIZE}.", metavar=NORMALIZE_FORM, show_default=False)] = "auto",
    classes: Annotated[
        int, typer.Option(help="Number of classes of the model, if there is no --data.", min=1, max=100_000)
    ] = 10,
    shape: Annotated[
        str,
        typer.Option(help="Shape of its pictures, channels x height x width, if there is no --data.", metavar="CxHxW"),
    ] = "3x32x32",
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle", help="Also accept weights in a pickle file. A separate process reads it, tensors only."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every statistic as JSON.")] = False,
) -> None:
    """Look for structure that a dishonest server may have planted in a model, before you train on it.

    Exit code 3: suspicious structure found. 0: none found (not a proof of absence).

    [bold]Examples[/bold]

    gradveil check-model resnet18 --weights received.safetensors --classes 100

    gradveil check-model received.py:make --weights received.safetensors --data pictures/ --reference last.safetensors

    [dim]A Python model file is executed. Check where it comes from first.[/dim]
    """
    from gradveil import data as data_sets
    from gradveil.core.choice import parse_pairs
    from gradveil.inspection import inspect
    from gradveil.inspection.sources import model_from, reference_from, shape_from
    from gradveil.models.weights import allow_pickles

    pixels = shape_from(shape)
    pictures = data_sets.load(data, **parse_pairs(data_option or [], "--data-option")) if data else None
    with allow_pickles(allow_pickle):
        subject = model_from(model, weights, pictures, classes, pixels, normalize)
        known = (
            reference_from(reference, reference_weights, pictures, classes, pixels, normalize) if reference else None
        )
    inspection = inspect(subject, None if pictures is None else pictures.images, known)
    typer.echo(as_text(inspection) if not as_json else _json(inspection))
    if inspection.planted:
        raise typer.Exit(FOUND)


def as_text(inspection: Inspection) -> str:
    """The verdict, what it rests on, and what was not looked at."""
    lines = [inspection.verdict]
    lines += [f"  {m.check}, {m.layer}: {m.sentence}" for m in inspection.findings]
    layers = len({m.layer for m in inspection.checked})
    lines += [f"{len(inspection.checked)} statistics of {layers} layers were compared with their thresholds"]
    return "\n".join([*lines, *inspection.skipped])


def as_table(inspection: Inspection) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "verdict": inspection.verdict,
        "planted": inspection.planted,
        "findings": [asdict(m) for m in inspection.findings],
        "checked": [asdict(m) for m in inspection.checked],
        "skipped": list(inspection.skipped),
    }


def _json(inspection: Inspection) -> str:
    import json

    return json.dumps(as_table(inspection), indent=2, allow_nan=False)
