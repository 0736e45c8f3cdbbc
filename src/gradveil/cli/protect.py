"""`gradveil protect`: from options to encoded pictures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gradveil.cli._help import DATA_OPTION, DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET, SEED
from gradveil.cli.audit import METHOD, option
from gradveil.core.errors import ConfigError

WHAT, HOW, OUT = option("What is encoded"), option("How it is computed"), option("What comes out")
PRECISIONS = ("float32", "tf32", "bf16")


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
    from gradveil.cli._options import check_out, compute_of
    from gradveil.core.choice import parse_pairs
    from gradveil.core.errors import unknown
    from gradveil.data.encoded import ARCHIVE, SHEET
    from gradveil.experiment import progress
    from gradveil.protect.offline import protect

    if precision not in PRECISIONS:
        raise unknown("name", precision, PRECISIONS, where="precision")
    compute = compute_of(device, "float32" if precision == "bf16" else precision, "auto", None)
    check_out(out)
    if precision == "bf16":
        defense = in_bf16(defense)
    start, options = time.monotonic(), parse_pairs(data_option or [], "data_options")
    shown = progress.for_stream(quiet)
    manifest = protect(data, defense, out, data_options=options, seed=seed, compute=compute, progress=shown)
    if not quiet:
        count, seconds = manifest["data"]["pictures"], time.monotonic() - start
        typer.echo(f"{count} pictures in {seconds:.1f} s ({count / seconds:.1f} a second): {out / ARCHIVE}")
        typer.echo(f"{out / SHEET} shows the first of them before and after: it is as private as they are")


def in_bf16(defense: str) -> str:
    """The same defense with features in bfloat16: an option of its own, which rounds features alone."""
    from gradveil.core.check import options_of
    from gradveil.core.choice import parse_choice
    from gradveil.defenses import DEFENSES

    name = parse_choice(defense, "defense", DEFENSES).name
    if name in DEFENSES and "bf16" not in options_of(DEFENSES[name]):
        raise ConfigError(f"{name} has no features to round to bf16, take float32 or tf32", key="precision")
    return f"{defense}{',' if ':' in defense else ':'}bf16=true"
