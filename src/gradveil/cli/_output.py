"""What several commands print: tables, and the lines below them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer

LONGEST_LINE = 5000  # letters: a path is at most 4,096


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Boxed on a terminal, plain columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(*columns)
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def print_summary(columns: Sequence[str], rows: Sequence[Sequence[str]], sentences: Iterable[str]) -> None:
    """A table and what it does not say."""
    print_table(columns, rows)
    for sentence in sentences:
        typer.echo(sentence)


def print_to_stderr(text: str) -> None:
    """One line, without anything that could steer a terminal."""
    print("".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_LINE]), file=sys.stderr)
