"""`gradveil capture show` and `check`: what is in a capture, and whether pictures lead to its updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli._help import DATA_OPTION, LOSS_FORM, MODEL_FORM, NORMALIZE, NORMALIZE_FORM, PAIR_FORM, PICTURES_FORM
from gradveil.core.errors import ConfigError

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


@capture.command("from-nvflare")
def from_nvflare(
    sent: Annotated[
        Path,
        typer.Argument(
            help="File with the weights sent: a DXO or shareable of NVFlare.", metavar="SENT", show_default=False
        ),
    ],
    update: Annotated[
        list[str],
        typer.Option(help="A client and the file with its answer.", metavar="CLIENT=FILE", show_default=False),
    ],
    shape: Annotated[
        str, typer.Option(help="Channels, height and width of a picture.", metavar="C,H,W", show_default=False)
    ],
    classes: Annotated[int, typer.Option(help="Number of classes.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Capture file to write.", metavar="FILE", show_default=False)],
    examples: Annotated[
        list[str] | None, typer.Option(help="A client and its number of pictures.", metavar="CLIENT=N")
    ] = None,
    training: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the local training, such as rate=0.1 (docs/captures.md).", metavar="KEY=VALUE"),
    ] = None,
    model: Annotated[str, typer.Option(help="Name of the model in `gradveil list models`.", metavar="NAME")] = "",
    defense: Annotated[str, typer.Option(help="What the clients say they ran.", metavar="NAME[:k=v,...]")] = "",
) -> None:
    """Make a capture of a round of NVFlare from files that `DXO.to_file` wrote.

    [bold]Example[/bold]

    gradveil capture from-nvflare global.fobs --update site-1=site-1.fobs --shape 3,32,32 --classes 10
    --out round.safetensors
    """
    from gradveil.capture import save
    from gradveil.capture.document import parse_training
    from gradveil.core.choice import parse_pairs
    from gradveil.nvflare import convert

    settings = parse_pairs(training or [], "training")
    found = convert(
        sent, parse_pairs(update, "update", texts=True), shape=read_shape(shape), classes=classes,
        examples=parse_pairs(examples or [], "examples"),
        training=parse_training(settings, "training") if settings else None, model=model, defense=defense,
    )  # fmt: skip
    typer.echo(f"{save(out, found)}: {len(found.updates)} clients, round {found.round}")


def read_shape(text: str) -> tuple[int, int, int]:
    """
    >>> read_shape("3,32,32")
    (3, 32, 32)
    """
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() and len(part) < 9 for part in parts):
        raise ConfigError(f"must be channels, height and width such as 3,32,32, got {text[:50]!r}", key="shape")
    channels, height, width = map(int, parts)
    return channels, height, width


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
    from gradveil.capture.names import rename_for
    from gradveil.capture.preflight import check_capture, model_of
    from gradveil.config.normalization import normalize_as

    if not model and not found.model:
        return ["no model is named: add --model to check names, sign and normalization"]
    sent = normalize_as(model_of(found, model, file), normalize, found.shape[0])
    found, renamed = rename_for(found, sent)
    notes = [*([renamed] if renamed else []), *check_capture(found, sent, file)]
    if estimate:
        from gradveil.capture.replay import describe_training

        notes.append(describe_training(found, sent))
    return notes
