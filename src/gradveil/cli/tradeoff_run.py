"""Run a study, write its page, and say in a few lines what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import typer

from gradveil.cli.options import check_out, compute_of
from gradveil.cli.search_run import print_columns
from gradveil.core.choice import parse_pairs
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.experiment import progress
from gradveil.experiment.folder import REPORT
from gradveil.tradeoff import StudySettings, tradeoff
from gradveil.tradeoff.settings import check_settings
from gradveil.tradeoff.study import RESULT
from gradveil.tradeoff.summary import columns, rows, sentences


def study_of(given: Mapping[str, Any], data_options: Sequence[str], metrics: Sequence[str]) -> StudySettings:
    """The options that were given, over the defaults; checked before anything is loaded."""
    there = {name: value for name, value in given.items() if value is not None and value != []}
    plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in there.items()}
    kept = tuple(dict.fromkeys((*StudySettings().metrics, *metrics)))
    study = StudySettings(**plain, metrics=kept, data_options=parse_pairs(list(data_options), "--data-option"))
    check_settings(study)
    return study


def compute_for(device: str, precision: str, workers: int | None, ray: str) -> Compute:
    """On a CPU every core is used unless told otherwise."""
    if precision not in ("float32", "tf32"):
        raise ConfigError(f"--precision: {precision} is not for training, take float32 or tf32")
    compute = compute_of(device, precision, "auto", None, workers or 0, None, ray)
    if workers is None and not ray and compute.device == "cpu":
        return compute_of("cpu", precision, "auto", None, torch.get_num_threads())
    return compute


def run_and_tell(study: StudySettings, folder: Path, compute: Compute, seconds: float | None, quiet: bool) -> None:
    check_out(folder)
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"--seconds: must be above 0, got {seconds}")
    outcome = tradeoff(study, folder, compute=compute, progress=progress.for_stream(quiet), seconds=seconds)
    if not quiet:
        print_columns(columns(outcome), rows(outcome))
        for sentence in sentences(outcome):
            typer.echo(sentence)
        typer.echo(f"page: {folder / REPORT}, numbers: {folder / RESULT}")
