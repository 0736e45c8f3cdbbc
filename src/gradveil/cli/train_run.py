"""Train, and say in a few lines what came out."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from gradveil.cli.options import check_out, compute_of
from gradveil.cli.train_asked import Asked, check_engine, checkpoints_of, default_folder, federation_of
from gradveil.cli.train_budget import check_delta_of, privacy_of
from gradveil.cli.train_data import Material, check_model_name, defense_of, gathered, model_for
from gradveil.cli.train_progress import Told
from gradveil.cli.train_told import sentences, summary
from gradveil.core.check import check
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.dp.budget import Budget
from gradveil.train.federated import train
from gradveil.train.folder import TrainingFolder, count_rounds
from gradveil.train.partition import partition
from gradveil.train.result import Trained
from gradveil.train.rounds import OnRound
from gradveil.train.settings import Federation
from gradveil.train.setup import Precision

LOOKS = 20


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is run: all options checked, the data read."""

    asked: Asked
    material: Material
    federation: Federation
    defense: Defense
    folder: Path
    checkpoints: tuple[int, ...]
    every: int
    device: str
    precision: Precision
    privacy: Budget | None

    def run(self, on_round: OnRound) -> Trained:
        if self.asked.engine == "flower":
            return self.by_flower()
        return train(
            model_for(self.asked.model, self.material),
            self.material.training,
            self.material.validation,
            self.federation,
            self.defense,
            folder=self.folder,
            checkpoints=self.checkpoints,
            evaluate_every=self.every,
            device=self.device,
            precision=self.precision,
            chunk=self.asked.chunk,
            public=self.material.public,
            settings=self.asked.told(),
            privacy=self.privacy,
            on_round=on_round,
        )

    def by_flower(self) -> Trained:
        from gradveil.flower.train import train as train_by_flower

        data, options = self.material, self.material.model_options
        told = (data.training, data.validation, self.federation, self.asked.defense)
        extra = {"checkpoints": self.checkpoints, "public": self.material.public, "privacy": self.privacy}
        return train_by_flower(self.asked.model, options, *told, folder=self.folder, **extra)


def run_and_tell(asked: Asked, out: Path | None, *, as_json: bool, quiet: bool) -> None:
    job = job_of(asked, out)
    if job.privacy is not None and not (quiet or as_json):
        print(job.privacy, file=sys.stderr)  # before the minutes are spent
    told = Told(job.federation.rounds, quiet or as_json)
    try:
        trained = job.run(told.round)
    except KeyboardInterrupt:
        kept = count_rounds(TrainingFolder(job.folder)) if asked.engine == "local" else "finished"
        print(f"interrupted: {kept} rounds are kept, go on with --out {job.folder}", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        told.end()
    if as_json:
        typer.echo(json.dumps(summary(trained, job.folder, job.privacy), indent=2))
    elif not quiet:
        for line in sentences(trained, job.folder, asked.audited(), job.privacy):
            typer.echo(line)


def job_of(asked: Asked, out: Path | None) -> Job:
    """Options that cannot be are said before the data is read."""
    check_out(out)
    device = compute_of(asked.device, "float32", "auto", asked.chunk).device
    precision, defense = check(asked.precision, Precision, "--precision"), defense_of(asked.defense)
    check_model_name(asked.model)
    check_engine(asked)
    check_delta_of(asked, defense)
    checkpoints_of(asked.checkpoints, federation_of(asked, pictures=1_000_000).rounds)
    if asked.evaluate_every is not None and asked.evaluate_every < 1:
        raise ConfigError(f"--evaluate-every: must be at least 1, got {asked.evaluate_every}")
    material = gathered(asked.data, asked.data_options, defense)
    federation = replace(federation_of(asked, len(material.training.images)), loss=material.dataset.loss)
    shares = partition(material.training.labels, federation)  # refuses impossible splits
    checkpoints = checkpoints_of(asked.checkpoints, federation.rounds)
    return Job(
        asked=asked,
        material=material,
        federation=federation,
        defense=defense,
        folder=out or default_folder(asked, federation, checkpoints),
        checkpoints=checkpoints,
        every=asked.evaluate_every or max(1, federation.rounds // (asked.epochs or LOOKS)),
        device=device,
        precision=precision,
        privacy=privacy_of(asked, material, federation, defense, [len(share) for share in shares]),
    )
