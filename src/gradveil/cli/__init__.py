"""The command line. torch is imported inside the commands alone, so that help is there at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from gradveil.cli.audit import audit
from gradveil.cli.bench import bench
from gradveil.cli.catalogue import catalogue
from gradveil.cli.report import report
from gradveil.errors import GradveilError

BAD_INPUT, INTERRUPTED = 2, 130

app = typer.Typer(
    name="gradveil",
    help="Audit what can be reconstructed from federated-learning updates, and choose the defense to deploy.",
    epilog="[bold]Start with[/bold] gradveil audit [dim](the default audit: built-in photographs, no files)[/dim]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("audit")(audit)
app.command("report")(report)
app.command("list")(catalogue)
app.add_typer(bench, name="bench")


def show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gradveil {version('gradveil')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code: 0 done, 2 bad input, 130 interrupted."""
    os.umask(0o077)  # everything that we write is private
    sys.exit(_code(arguments))


def _code(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="gradveil", standalone_mode=False)
    except GradveilError as error:
        return _tell(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors; typer carries click under varying names
            raise
        return _tell(error.format_message())  # type: ignore[attr-defined]
    return code if isinstance(code, int) else 0


def _tell(message: str) -> int:
    """One line, without anything that could steer a terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in message)
    print(f"error: {line}", file=sys.stderr)
    return BAD_INPUT
