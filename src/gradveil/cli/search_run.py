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
from gradveil.config.build import slug
from gradveil.core import toml
from gradveil.core.choice import parse_pairs
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import sha256
from gradveil.experiment import journal, progress
from gradveil.experiment.folder import JOURNAL, REPORT
from gradveil.search.page import write_search_page
from gradveil.search.search import search
from gradveil.search.settings import Search, checked
from gradveil.search.summary import COLUMNS, rows, sentences


def asked_of(given: Mapping[str, Any], data_options: Sequence[str]) -> Search:
    """The options that were given, over the defaults; checked before anything is loaded."""
    plain = {name: value for name, value in given.items() if value is not None and value != []}
    plain |= {"include": tuple(plain["include"])} if "include" in plain else {}
    asked = Search(**plain, data_options=parse_pairs(list(data_options), "--data-option"))
    checked(asked)
    return asked


def compute_for(device: str, precision: str, workers: int | None, ray: str) -> Compute:
    """On a CPU every core is used unless told otherwise."""
    compute = compute_of(device, precision, "auto", None, workers or 0)
    if workers is None and not ray and compute.device == "cpu":
        return compute_of("cpu", precision, "auto", None, torch.get_num_threads())
    return compute


def default_folder(asked: Search) -> Path:
    """runs/search-<data>-<model>-<hash of all settings>: the same command goes on with the same search."""
    what = slug(f"{Path(asked.data).name}-{Path(asked.model).name}")
    return Path("runs") / f"search-{what}-{sha256(toml.dump(asked.settings()).encode())[:8]}"


def run_and_tell(asked: Search, folder: Path, out: Path, compute: Compute, ray: str, quiet: bool) -> None:
    check_out(folder)
    check_file(out, folder, asked)
    try:
        outcome = search(asked, folder, compute, progress.for_stream(quiet), ray)
    except KeyboardInterrupt:
        kept = len(journal.read(folder / JOURNAL))
        print(f"interrupted: {kept} results are kept, go on with --folder {folder}", file=sys.stderr)
        raise typer.Exit(130) from None
    outcome.write(out)
    page = write_search_page(folder / REPORT, outcome, journal.read(folder / JOURNAL))
    if not quiet:
        print_columns(COLUMNS, rows(outcome))
        for sentence in sentences(outcome):
            typer.echo(sentence)
        typer.echo(f"policy: {out}, page: {page}")


def check_file(out: Path, folder: Path, asked: Search) -> None:
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
    if there != json.loads(json.dumps(asked.settings()["search"])):
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
