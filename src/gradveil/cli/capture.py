"""`gradveil capture show` and `check`: what is in a capture, and whether pictures lead to its updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli._help import DATA_OPTION, LOSS_FORM, MODEL_FORM, NORMALIZE, NORMALIZE_FORM, PAIR_FORM, PICTURES_FORM

if TYPE_CHECKING:
    from gradveil.capture import Capture

capture = typer.Typer(help="Inspect captured rounds: the updates of real clients.", no_args_is_help=True)


@capture.callback()
def commands() -> None:
    """Inspect captured rounds: the updates of real clients."""


@capture.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A capture file.", metavar="FILE", show_default=False)],
    model: Annotated[
        str,
        typer.Option(
            "--model", help="The model, if the capture does not name it.", show_default=False, metavar=MODEL_FORM
        ),
    ] = "",
    normalize: Annotated[str, typer.Option(help=f"{NORMALIZE}.", metavar=NORMALIZE_FORM, show_default=False)] = "auto",
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Estimate local steps and learning rate from the updates, by a search.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Print the contents of a capture: clients, training, model, hash, and warnings.

    [bold]Examples[/bold]

    gradveil capture show round-3.safetensors

    gradveil capture show round-3.safetensors --model mine.py:build --json
    """
    from gradveil.capture import load

    found = load(file)
    report, notes = about(found), _notes(found, model, file, normalize, estimate)
    if as_json:
        typer.echo(json.dumps(report | {"notes": notes}, indent=2))
        return
    clients = report.pop("clients")
    for key, value in report.items():
        typer.echo(f"{key}: {value}")
    typer.echo(f"clients: {len(clients)}")
    for name, one in clients.items():
        typer.echo(f"  {name}: " + ", ".join(f"{k} {v}" for k, v in one.items()))
    typer.echo("\n".join(f"note: {note}" for note in notes) or "notes: none")


@capture.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="A capture file.", metavar="FILE", show_default=False)],
    data: Annotated[
        str, typer.Option(help="The captured clients' pictures.", metavar=PICTURES_FORM, show_default=False)
    ],
    data_option: Annotated[list[str] | None, typer.Option(help=DATA_OPTION, metavar=PAIR_FORM)] = None,
    pictures: Annotated[
        str | None, typer.Option(help="Row numbers in --data of the clients' pictures.", metavar="ROW,...")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model, if the capture does not name it.", metavar=MODEL_FORM)
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="The clients' loss, if it is a function of their own.", metavar=LOSS_FORM)
    ] = None,
    normalize: Annotated[str | None, typer.Option(help=f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = None,
    seconds: Annotated[float, typer.Option(help="Look for causes for about so long.", min=1)] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Play the captured clients again and, if their pictures do not lead to their updates, say why.

    Exit code 0: they do. 1: they do not. 2: bad input. It is the part of `gradveil doctor` that is about a capture.
    """
    from gradveil.cli._options import config_of
    from gradveil.cli.doctor import report
    from gradveil.doctor.diagnose import CAPTURED, diagnose_config

    given = {"--capture": str(file), "--data": data, "--data-option": data_option, "--pictures": pictures,
             "--model": model, "--loss": loss, "--normalize": normalize}  # fmt: skip
    report(diagnose_config(config_of(None, given), {}, seconds, CAPTURED), as_json)


def about(found: Capture) -> dict[str, Any]:
    """A capture in words and numbers, without its tensors."""
    from gradveil.audit.update_match import length
    from gradveil.capture import content_hash
    from gradveil.capture.mode import describe_mode

    clients = {
        name: {
            "pictures": found.examples[name] or "not told",
            "length": float(f"{float(length(list(update.values()))):.4g}"),
            "labels": "told" if name in found.labels else "not told",
            "statistics": len(found.statistics.get(name, {})),
            "normalized by": describe_mode(found, name) or "not told",
            **{f"metric {key}": float(f"{value:.4g}") for key, value in found.metrics.get(name, {}).items()},
        }
        for name, update in found.updates.items()
    }
    return {
        "model": found.model or "not named",
        "round": found.round,
        "parameters": sum(tensor.numel() for tensor in next(iter(found.updates.values())).values()),
        "pictures": "x".join(map(str, found.shape)),
        "classes": found.classes,
        "training": found.training.to_table(),
        "normalization": found.normalization,
        "defense": found.defense or "not told",
        "aggregate": found.aggregate,
        "producer": found.producer or "not named",
        "sha256": content_hash(found),
        "clients": clients,
    }


def _notes(found: Capture, model: str, file: Path, normalize: str, estimate: bool) -> list[str]:
    from gradveil.capture.preflight import check_capture, model_of
    from gradveil.config.normalization import normalize_as

    if not model and not found.model:
        return ["no model is named: add --model to check names, sign and normalization"]
    sent = normalize_as(model_of(found, model, file), normalize, found.shape[0])
    notes = check_capture(found, sent, file)
    if estimate:
        from gradveil.capture.replay import describe_training

        notes.append(describe_training(found, sent))
    return notes
