"""The command line. torch is imported inside the commands alone, so that help is there at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gradveil.cli._errors import in_options, options_of
from gradveil.cli._output import print_to_stderr
from gradveil.cli.audit import audit
from gradveil.cli.bench import bench
from gradveil.cli.calibrate import calibrate
from gradveil.cli.capture import capture
from gradveil.cli.catalogue import catalogue
from gradveil.cli.check_model import check_model
from gradveil.cli.doctor import doctor
from gradveil.cli.gate import gate
from gradveil.cli.protect import protect
from gradveil.cli.recommend import recommend
from gradveil.cli.report import report
from gradveil.cli.reproduce import reproduce_cell
from gradveil.cli.search import search
from gradveil.cli.sign import sign
from gradveil.cli.table import table
from gradveil.cli.tradeoff import tradeoff
from gradveil.cli.train import train
from gradveil.cli.train_extractor import train_extractor
from gradveil.cli.train_gan import train_gan
from gradveil.cli.train_generator import train_generator
from gradveil.cli.train_inverter import train_inverter
from gradveil.cli.verify import verify
from gradveil.core.errors import GradveilError, Interrupted

BAD_INPUT, INTERRUPTED = 2, 130


class _Stopped(Exception):
    """Carries what an interrupted experiment says past typer, which knows Ctrl-C without a message alone."""

    def __init__(self, interrupted: Interrupted) -> None:
        self.interrupted = interrupted


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted as interrupted:
            raise _Stopped(interrupted) from None


app = typer.Typer(
    name="gradveil",
    cls=_Commands,
    help="Measure what can be reconstructed from federated-learning updates, and compare defenses.",
    epilog="[bold]Start with[/bold] gradveil audit [dim](the default audit: built-in photographs, no files)[/dim]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("audit")(audit)
app.command("doctor")(doctor)
app.command("search")(search)
app.command("train")(train)
app.command("tradeoff")(tradeoff)
app.command("calibrate")(calibrate)
app.command("recommend")(recommend)
app.command("protect")(protect)
app.command("train-extractor")(train_extractor)
app.command("train-generator")(train_generator)
app.command("train-gan")(train_gan)
app.command("train-inverter")(train_inverter)
app.command("report")(report)
app.command("verify")(verify)
app.command("sign")(sign)
app.command("gate")(gate)
app.command("reproduce-cell")(reproduce_cell)
app.command("table")(table)
app.command("check-model")(check_model)
app.command("list")(catalogue)
app.add_typer(capture, name="capture")
app.add_typer(bench, name="bench")


def show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gradveil {version('gradveil')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code: 0 done, 1 a verdict failed, 2 bad input, 130 interrupted."""
    os.umask(0o077)  # everything that we write is private
    # on import torch makes a folder for compiled code, of which we have none: let it be one that is there already
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.environ.get("TMPDIR") or "/tmp")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us so gets what Ctrl-C gets
    try:
        code = _code(arguments)
    except KeyboardInterrupt:  # a second one, while the first is being told
        code = INTERRUPTED
    if _is_kept():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what is finished is on disk
    sys.exit(code)


def _is_kept() -> bool:
    """Whether Python would wait at its exit for a thread in the middle of a long step."""
    if "gradveil.core.threads" not in sys.modules:
        return False
    from gradveil.core.threads import left_behind

    try:
        return left_behind(patience=0.5)
    except KeyboardInterrupt:
        return True


def _code(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="gradveil", standalone_mode=False)
    except GradveilError as error:
        _tell(in_options(error, options_of(app, sys.argv[1:] if arguments is None else list(arguments))))
        return error.exit_code
    except _Stopped as stop:
        given = sys.argv[1:] if arguments is None else list(arguments)
        print_to_stderr(f"interrupted: {in_options(stop.interrupted, options_of(app, given))}")
        return INTERRUPTED
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"{error.filename}: {error.strerror}")
        return BAD_INPUT
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's usage errors; typer carries click under varying names
            raise
        if error.format_message():  # type: ignore[attr-defined]  # a group without a command shows its help
            _tell(_of_usage(error))
        return BAD_INPUT
    return code if isinstance(code, int) else 0


def _of_usage(error: Any) -> str:
    """What click says, in our own form: the option, what is wrong with it, and where to look."""
    context = getattr(error, "ctx", None)
    message, name = error.format_message(), getattr(error, "option_name", "")
    if parameter := getattr(error, "param", None):
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.make_metavar(context)
        message = error.message or "is missing, give it"
    if near := get_close_matches(name, getattr(error, "possibilities", None) or (), n=1, cutoff=0):
        message = f"no such option, did you mean {near[0]}"
    message = f"{message[:1].lower()}{message[1:]}".replace(f"no such option: {name}", "no such option.")
    message = message.replace(f"option '{name}' requires", "requires").replace(". Did", ", did").rstrip(".?")
    path = context.command_path if context else "gradveil"
    return f"{name or path}: {message}, see {path} --help"


def _tell(message: str) -> None:
    print_to_stderr(f"error: {message}")
