"""Run a search, write its policy.json, and say in a few lines what came out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import typer

from gradveil.cli.options import check_out, compute_of
from gradveil.core.choice import parse_pairs
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.experiment import progress
from gradveil.experiment.folder import REPORT
from gradveil.search.search import search
from gradveil.search.settings import SearchSettings, check_settings
from gradveil.search.summary import COLUMNS, rows, sentences


def asked_of(given: Mapping[str, Any], data_options: Sequence[str]) -> SearchSettings:
    """The options that were given, over the defaults; checked before anything is loaded."""
    plain = {name: value for name, value in given.items() if value is not None and value != []}
    plain |= {"include": tuple(plain["include"])} if "include" in plain else {}
    asked = SearchSettings(**plain, data_options=parse_pairs(list(data_options), "--data-option"))
    check_settings(asked)
    return asked


def compute_for(device: str, precision: str, workers: int | None, ray: str) -> Compute:
    """On a CPU every core is used unless told otherwise."""
    compute = compute_of(device, precision, "auto", None, workers or 0, None, ray)
    if workers is None and not ray and compute.device == "cpu":
        return compute_of("cpu", precision, "auto", None, torch.get_num_threads())
    return compute


def run_and_tell(asked: SearchSettings, folder: Path, out: Path, compute: Compute, quiet: bool) -> None:
    check_out(folder)
    check_file(out, folder, asked)
    outcome = search(asked, folder, compute=compute, progress=progress.for_stream(quiet))
    outcome.write(out)
    if not quiet:
        print_columns(COLUMNS, rows(outcome))
        for sentence in sentences(outcome):
            typer.echo(sentence)
        typer.echo(f"policy: {out}, page: {folder / REPORT}")


def check_file(out: Path, folder: Path, asked: SearchSettings) -> None:
    """A new file, or the one that this very search has written before."""
    if out.is_symlink() or out.is_dir() or not str(out).isprintable():
        raise ConfigError(f"--out: {out}: not a file, choose another name")
    if out.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"--out: {out} lies in the folder of the search, choose a place outside")
    if not out.exists():
        return
    try:
        there = json.loads(out.read_bytes()).get("settings")
    except (ValueError, AttributeError, RecursionError):
        there = None
    if there != json.loads(json.dumps(asked.to_tables()["search"])):
        raise ConfigError(f"--out: {out} exists and is not of this search, choose another name")


def print_columns(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Boxed on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*columns)
        for line in lines:
            table.add_row(*map(escape, line))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    for line in (columns, *lines):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
