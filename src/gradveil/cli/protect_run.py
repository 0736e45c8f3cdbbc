"""Encode or train, and say in a few lines what came out."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer
from torch import Tensor

from gradveil import data as datasets
from gradveil.cli.options import check_out, compute_of
from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import Choice, parse_choice, parse_pairs
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, DiskError, unknown
from gradveil.data import Dataset
from gradveil.data.encoded import ARCHIVE, SHEET, refuse_encoded
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.starts import options_for
from gradveil.experiment import journal, progress
from gradveil.experiment.folder import BROKEN, FULL, JOURNAL
from gradveil.protect.offline import Protection, protect
from gradveil.train.extractor import ExtractorTraining, store_extractor, train_extractor

PRECISIONS = ("float32", "tf32", "bf16")


def compute_on(device: str, precision: str) -> Compute:
    """`bf16` is an option of the defense, which rounds features alone: all else is then float32."""
    if precision not in PRECISIONS:
        raise unknown("name", precision, PRECISIONS, where="--precision")
    return compute_of(device, "float32" if precision == "bf16" else precision, "auto", None)


def with_precision(method: str, precision: str) -> Choice:
    """The defense that `--defense` names, in bfloat16 if `--precision` asks for it."""
    choice = parse_choice(method, "--defense", DEFENSES)
    if precision != "bf16":
        return choice
    if choice.name in DEFENSES and "bf16" not in inspect.signature(DEFENSES[choice.name]).parameters:
        raise ConfigError(f"--precision: {choice.name} has no features to round to bf16, take float32 or tf32")
    return replace(choice, options={**choice.options, "bf16": True})


def protect_and_tell(
    spec: str, data_options: Sequence[str], choice: Choice, out: Path, seed: int, compute: Compute, quiet: bool
) -> None:
    check_out(out)
    refuse_encoded(spec)
    checked = resolve(AuditConfig(defense={choice.name: choice}), lambda key: key.replace("defense.", "--defense: "))
    settings = checked.defense[choice.name].options
    defense = DEFENSES[choice.name](**settings)
    job = Protection(
        dataset=training_part(spec, data_options),
        defense=defense,
        settings={"name": choice.name, **settings},
        seed=seed,
    )
    start = time.monotonic()
    with told_what_is_kept(out):
        manifest = protect(job, out, compute, progress.for_stream(quiet))
    if not quiet:
        count, seconds = manifest["data"]["pictures"], time.monotonic() - start
        typer.echo(f"{count} pictures in {seconds:.1f} s ({count / seconds:.1f} a second): {out / ARCHIVE}")
        typer.echo(f"{out / SHEET} shows the first of them before and after: it is as private as they are")


@contextmanager
def told_what_is_kept(out: Path):
    """Of what is finished nothing is lost, whoever ends it."""
    try:
        yield
    except KeyboardInterrupt:
        parts = len(journal.read(out / JOURNAL))
        print(f"interrupted: {parts} parts are kept, give the same command again", file=sys.stderr)
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in FULL + BROKEN:
            raise
        raise DiskError(f"{out}: {error.strerror}, finished parts are kept, give the same command again") from error


def training_part(spec: str, data_options: Sequence[str]) -> Dataset:
    """The data set; where it has a part to train on, that part unless another is asked for."""
    options: dict[str, Any] = parse_pairs(list(data_options), "--data-option")
    scenario = resolve(AuditConfig(scenario=ScenarioConfig(data=spec, data_options=options)), _asked_for).scenario
    part = {"split": "train"} if "split" in options_for(spec) and "split" not in options else {}
    return datasets.load(spec, **{**scenario.data_options, **part})


def _asked_for(key: str) -> str:
    return key.replace("scenario.data_options", "--data-option").replace("scenario.data", "DATA")


def train_and_tell(
    spec: str, data_options: Sequence[str], schooling: ExtractorTraining, out: Path, compute: Compute, quiet: bool
) -> None:
    """Nothing is written before the last epoch."""
    check_file(out)
    dataset = training_part(spec, data_options)

    def told(epoch: int, loss: Tensor) -> None:
        if not quiet:
            print(f"epoch {epoch} of {schooling.epochs}, loss {loss.item():.3f}", file=sys.stderr)

    with compute.active():
        model, right = train_extractor(dataset, schooling, compute.device, told)
    store_extractor(model, dataset, schooling, right, out)
    if not quiet:
        how = ", ".join(f"{name} {value}" for name, value in asdict(schooling).items())
        typer.echo(f"{how}: {right:.1%} of {dataset.name}'s held-out pictures are put into their class")
        typer.echo(f"use it as extractor={schooling.model}:{out}")


def check_file(out: Path) -> None:
    if out.suffix != ".safetensors" or not str(out).isprintable():
        raise ConfigError(f"--out: {out}: expected a file name that ends in .safetensors")
    if out.exists() or out.is_symlink() or not out.parent.is_dir():
        what = "exists" if out.parent.is_dir() else f"{out.parent} is no folder"
        raise ConfigError(f"--out: {out}: {what}, choose another name")
