"""A training from settings to a folder, with its progress: `train("runs/pruned", defense="prune:ratio=0.9")`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from gradveil.config.normalization import parse_normalization
from gradveil.core.compute import pick_device
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.data.base import check_classes
from gradveil.defenses import parse_defense
from gradveil.dp.budget import Budget
from gradveil.experiment.experiment import default_folder
from gradveil.models import MODELS
from gradveil.models.user import is_user_model
from gradveil.train.data import TrainingData, load_training_data
from gradveil.train.federated import train_federation
from gradveil.train.partition import partition
from gradveil.train.privacy import Stop, allowance_for, check_delta_is_used, find_stop, privacy_of
from gradveil.train.rounds import OnRound
from gradveil.train.settings import Federation, Precision, TrainSettings, default_federation
from gradveil.train.state import RoundResult, Trained


def train(
    folder: str | Path | None = None,
    settings: TrainSettings | None = None,
    *,
    model: str | None = None,
    normalize: str | None = None,
    data: str | None = None,
    data_options: Mapping[str, Any] | None = None,
    defense: str | None = None,
    federation: Federation | None = None,
    rounds: int | None = None,
    checkpoints: int | tuple[int, ...] | None = None,
    evaluate_every: int | None = None,
    device: str | None = None,
    precision: Precision | None = None,
    delta: float | None = None,
    epsilon_at_most: float | None = None,
    on_round: OnRound | None = None,
) -> Trained:
    """Train a model by federated learning under a defense, and write checkpoints that can be audited.

    For a model and pictures of your own as objects, see `train_federation`.

    Args:
        folder: Folder of the training (default runs/train-...). The folder of an interrupted one is continued.
        settings: All settings at once; the keywords down to `epsilon_at_most` are then left out.
        model: Name in `MODELS`, or `FILE.py:FACTORY` for a function that returns your own (default lenet).
        normalize: Constants that the model's input is normalized with: imagenet, cifar10, cifar100, none, or numbers as
            in 0.5,0.5,0.5/0.25,0.25,0.25 (default: those of the data for a named model, none for your own).
        data: A name in `DATASETS`, a folder with one folder per class, or a file (default photos).
        data_options: Options of the data set, such as `{"limit": 100}`.
        defense: What every client applies, as `NAME[:k=v,...]` (default none).
        federation: Clients, split, method and optimizer (default: 10 clients, FedAvg, 20 rounds).
        rounds: Number of rounds, in the place of the federation's.
        checkpoints: Number of checkpoints, evenly spaced, or the rounds after which to write them (default 4).
        evaluate_every: Rounds from one measurement of accuracy to the next (default: about 20 measurements).
        device: auto, cpu or cuda (default auto).
        precision: float32, tf32, bf16 or float64 (default float32).
        delta: Delta of the epsilon reported for dpsgd and fedcdp (default 1e-5).
        epsilon_at_most: Privacy budget; the training ends before the round that would exceed it (default: none).
        on_round: What is called with the result of every round.
    """
    if rounds is not None:
        federation = replace(federation or default_federation(), rounds=rounds)
    keywords = {
        "model": model, "normalize": normalize, "data": data, "data_options": data_options,
        "defense": defense, "federation": federation,
        "checkpoints": checkpoints, "evaluate_every": evaluate_every, "device": device, "precision": precision,
        "delta": delta, "epsilon_at_most": epsilon_at_most,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
    if settings is not None and given:
        raise ConfigError(f"leave out {', '.join(given)}, or the settings", key="settings")
    return prepare_training(settings or TrainSettings(**given), folder).run(on_round)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training ready to run: all settings are checked and the data is loaded. Nothing is written yet."""

    settings: TrainSettings
    data: TrainingData
    federation: Federation
    defense: Defense
    folder: Path
    privacy: Budget | None
    stop: Stop | None = None  # None: no budget ends it before its last round

    @property
    def checkpoints(self) -> tuple[int, ...]:
        return self.settings.rounds_to_save(self.federation.rounds)

    @property
    def rounds(self) -> int:
        """Those that are played."""
        return self.federation.rounds if self.stop is None else self.stop.round

    def run(self, on_round: OnRound | None = None) -> Trained:
        """By the engine in this process."""
        if self.settings.engine != "local":
            raise ConfigError("must be local here; `gradveil.flower.train.simulate` runs flower", key="engine")
        return train_federation(
            self.data.model(self.settings.model, self.settings.normalize),
            self.data.training,
            self.data.validation,
            self.federation,
            self.defense,
            folder=self.folder,
            checkpoints=self.checkpoints,
            evaluate_every=self.settings.rounds_between_evaluations(self.federation.rounds),
            device=pick_device(self.settings.device),
            precision=self.settings.precision,
            chunk=self.settings.chunk,
            public=self.data.public,
            settings=self.settings.identity(),
            privacy=self.privacy,
            stop=self.stop,
            on_round=on_round,
        )


def prepare_training(settings: TrainSettings, folder: str | Path | None = None) -> Training:
    """Names and numbers are checked before the data is loaded."""
    if not is_user_model(settings.model) and settings.model not in MODELS:
        raise unknown("model", settings.model, MODELS)
    if settings.engine == "flower" and is_user_model(settings.model):
        raise ConfigError("`engine = flower` trains models of the catalogue only, use `engine = local`", key="model")
    parse_normalization(settings.normalize)
    defense = parse_defense(settings.defense, "defense")
    check_delta_is_used(settings.delta, defense, settings.epsilon_at_most)
    data = load_training_data(settings.data, tuple(settings.data_options), defense.knowledge().mixes)
    check_classes(data.dataset)
    federation = replace(settings.federation_of(len(data.training.images)), loss=data.dataset.loss)
    sizes = [len(share) for share in partition(data.training.labels, federation)]  # refuses impossible splits
    model = data.model(settings.model, settings.normalize)
    allowance = allowance_for(model, defense, federation, settings.epsilon_at_most, settings.delta)
    stop = None if allowance is None else find_stop(federation, sizes, allowance)
    played = federation if stop is None else replace(federation, rounds=stop.round)
    return Training(
        settings=settings,
        data=data,
        federation=federation,
        defense=defense,
        folder=Path(folder) if folder else folder_of(settings, federation),
        privacy=privacy_of(model, defense, played, sizes, settings.delta),
        stop=stop,
    )


def folder_of(settings: TrainSettings, federation: Federation) -> Path:
    """runs/train-<data>-<model>-<hash of all settings>: the same settings go on with the same run."""
    plain = {key: value for key, value in asdict(federation).items() if value is not None}
    saved = settings.rounds_to_save(federation.rounds)
    run = {"engine": settings.engine, "precision": settings.precision, "checkpoints": saved, **settings.identity()}
    tables = {**run, "every": settings.evaluate_every or 0, "federation": plain}
    return default_folder("train", settings.data, settings.model, tables)


EVERY = 5.0  # seconds between lines


class RoundProgress:
    """Shows every round. The time left is measured from the first round of this process."""

    def __init__(self, rounds: int, quiet: bool, stream: TextIO | None = None, every: float = EVERY) -> None:
        self.rounds, self.quiet, self.stream, self.every = rounds, quiet, stream or sys.stderr, every
        self.begin = self.printed = time.monotonic()
        self.first: int | None = None
        self.accuracy: float | None = None
        self.bar: Any = None
        if not quiet and self.stream.isatty():
            self.bar = _bar(rounds)

    def round(self, result: RoundResult) -> None:
        self.first = result.round if self.first is None else self.first
        self.accuracy = self.accuracy if result.accuracy is None else result.accuracy
        if self.quiet:
            return
        if result.void or result.dropped:
            self.print_line(f"round {result.round}: {fault(result)}")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=result.round, description=self.line(result))
        elif time.monotonic() - self.printed >= self.every or result.round == self.rounds:
            self.print_line(f"{self.line(result)}, about {self.seconds_left(result.round):.0f} s left")

    def line(self, result: RoundResult) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {100 * self.accuracy:.1f} %"
        return f"round {result.round} of {self.rounds}, loss {result.loss:.3f}{accuracy}"

    def seconds_left(self, round: int) -> float:
        played = round - (self.first or round) + 1
        return (time.monotonic() - self.begin) / played * (self.rounds - round)

    def print_line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text)
        else:
            print(text, file=self.stream, flush=True)
        self.printed = time.monotonic()

    def end(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def fault(result: RoundResult) -> str:
    left_out = f"{', '.join(result.names)} left out, not finite"
    return f"void, {left_out}" if result.void else left_out


def _bar(rounds: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    bar.add_task("training", total=rounds)
    bar.start()
    return bar
