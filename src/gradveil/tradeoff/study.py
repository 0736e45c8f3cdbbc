"""Accuracy against leakage (ROG, figure 9a), journaled and resumed like an audit.

train every defense with the same seeds -> attack the models of that training on the clients' own pictures
-> noise at other scales until it costs what each defense costs -> points, front, comparison with noise
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from gradveil.config.build import model_of
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_models
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import REPORT, RunFolder
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import provenance
from gradveil.experiment.runner import Runner
from gradveil.experiment.seal import SEAL, SIGNATURE, seal
from gradveil.tradeoff.defenses import Candidate, noise
from gradveil.tradeoff.estimates import front, next_scale
from gradveil.tradeoff.leakage import Auditor
from gradveil.tradeoff.outcome import Point, StudyOutcome
from gradveil.tradeoff.page import write_study_page
from gradveil.tradeoff.points import flags_of, noise_accuracies, place, points_of
from gradveil.tradeoff.runner import StudyRunner
from gradveil.tradeoff.settings import StudySettings, check_settings
from gradveil.tradeoff.split import StudySplit, split_pictures
from gradveil.tradeoff.training import Trainer

STUDY, POINTS, MODELS, UNFINISHED, RESULT = "study", "points", "models", "unfinished", "tradeoff.json"
OURS = {STUDY, POINTS, MODELS, UNFINISHED, REPORT, SEAL, SIGNATURE}


class StudyFolder(RunFolder):
    """The study's own journal is in `study`; beside it are its audits in `points`, its `models` and its results."""

    result: ClassVar[str] = RESULT
    derived = (RESULT, REPORT, SEAL)
    results = "trainings and audits"

    def __init__(self, path: Path) -> None:
        super().__init__(path / STUDY)

    @property
    def user_path(self) -> Path:
        return self.path.parent

    def check(self, config: str, provenance: Mapping[str, Any]) -> None:
        check_outer_folder(self.user_path, self.result)
        super().check(config, provenance)

    def create(self) -> None:
        super().create()
        for name in (POINTS, MODELS):
            (self.user_path / name).mkdir(exist_ok=True)


def check_outer_folder(folder: Path, result: str = RESULT) -> None:
    """Refuse a folder that holds anything else than a study with this file of results."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder}: not a folder, choose another `folder`")
    there = [path.name for path in folder.iterdir()] if folder.exists() else []
    names = {name.removesuffix(".part") for name in there if not name.startswith(".")}
    if names - OURS - {result} or (names and STUDY not in names):
        raise ConfigError(f"{folder}: exists and is not the folder of a study, choose another `folder`")


def tradeoff(
    settings: StudySettings,
    folder: str | Path,
    *,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    seconds: float | None = None,
) -> StudyOutcome:
    """Accuracy against leakage: train and attack a model under many defenses. Goes on with what is in `folder`.

    settings: model, data, defenses, training and attacks; see `StudySettings`.
    folder: where the models, the audits, tradeoff.json and report.html go.
    compute: device and precision; `workers` processes or a Ray cluster do the trainings and attacks.
    progress: what shows how far the study is; nothing by default.
    seconds: after this time no new training or attack is started; call again to resume. No limit by default.
    """
    return run(Study(settings, seconds), folder, compute, progress)


class Study(Experiment[StudyOutcome]):
    """A study of accuracy against leakage on the way that all experiments go."""

    folder_type = StudyFolder
    split: StudySplit
    models: tuple[nn.Module, ...]  # untrained, one for each seed

    def __init__(self, settings: StudySettings, seconds: float | None = None) -> None:
        self.settings = settings
        self.until = math.inf if seconds is None else time.monotonic() + seconds
        self.compute = Compute()

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        candidates = check_settings(self.settings)
        check_outer_folder(home.user_path)
        self.load(compute)
        check_defenses(self.settings, candidates, self.split, self.models[0])

    def load(self, compute: Compute) -> None:
        """The machine is checked, then the data and the models are there."""
        Pool.of(compute).check(compute.device)
        self.compute = compute
        self.split, self.models = load_study(self.settings)

    def to_tables(self) -> Mapping[str, Any]:
        return self.settings.to_tables()

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        """Where the points come from: the untrained models and all pictures."""
        trained = Scenario(name="training", model=self.models[0], private=self.split.training, names=())
        validated = replace(trained, name="validation", private=self.split.validation)
        found = provenance(trained, None, config, self.settings.seed, compute, (validated,))
        threads = 1 if compute.spread or compute.device == "cpu" else torch.get_num_threads()
        models = {str(number): model for number, model in enumerate(self.models)}
        return found | {"model_sha256": hash_models(models), "threads": threads}

    def play(self, runner: Runner) -> StudyOutcome:
        outcome = _run_stages(self.settings, self.settings.candidates(), self.runner(runner))
        return replace(outcome, provenance=runner.brief_origin)

    def runner(self, runner: Runner) -> StudyRunner:
        folder, compute = runner.home.user_path, self.compute
        trainer = Trainer(
            study=self.settings,
            split=self.split,
            models=self.models,
            device=compute.device,
            precision="tf32" if compute.precision == "tf32" else "float32",
            folder=None if compute.ray else folder / UNFINISHED,
        )
        return StudyRunner(
            runner=runner, points=folder / POINTS, trainer=trainer, auditor=self.auditor(folder), until=self.until
        )

    def auditor(self, folder: Path) -> Auditor:
        """What attacks the models of this folder."""
        return Auditor(
            study=self.settings,
            split=self.split,
            models=self.models,
            weights=folder / MODELS,
            compute=self.compute,
        )

    def write(self, outcome: StudyOutcome, folder: Path) -> None:
        outcome.write(folder / RESULT)
        write_study_page(outcome, folder / REPORT)
        seal(folder)


def load_study(study: StudySettings) -> tuple[StudySplit, tuple[nn.Module, ...]]:
    """The data, and an untrained model for every seed."""
    scenario = study.audit_config(study.candidates()[0]).scenario
    split = split_pictures(scenario)
    each = [replace(scenario, model_seed=study.federation(number).seed) for number in range(study.seeds)]
    return split, tuple(model_of(one, split.dataset).eval() for one in each)


def check_defenses(study: StudySettings, candidates: Sequence[Candidate], split: StudySplit, model: nn.Module) -> None:
    """What a defense cannot act on is said before anything is trained."""
    training = study.federation(0).local_training(study.victim_batch, 0.0)
    private = Batch(*(x[: study.victim_batch][None] for x in split.training))
    scenario = Scenario(name="check", model=model, private=private, names=("client-0",), training=training,
                        public=split.public)  # fmt: skip
    for one in candidates:
        try:
            one.build().bind(scenario).check(in_client_mode(model, training))
        except ConfigError as error:
            raise ConfigError(f"{one.label}: {error}", key="defenses") from error


def _run_stages(study: StudySettings, candidates: Sequence[Candidate], runner: StudyRunner) -> StudyOutcome:
    """Trainings that are attacked first, so that a study cut short has points; then the others, then the noise."""
    runner.expect(candidates)
    runner.train(candidates, range(study.attacked_seeds))
    runner.audit(candidates)
    runner.train(candidates, range(study.seeds))
    everybody = _add_matching_noise(study, candidates, runner)
    runner.audit(everybody)
    points = points_of(study, everybody, runner.trainings(), runner.audits())
    ahead = front({point.label: place(point, study.measure) for point in points if point.on_front})
    return StudyOutcome(
        settings=study.to_tables()["tradeoff"],
        provenance={},
        points=points,
        front=ahead,
        flags=flags_of(study, points),
    )


def _add_matching_noise(study: StudySettings, candidates: Sequence[Candidate], runner: StudyRunner) -> list[Candidate]:
    """The candidates and noise at the scales that the accuracies ask for; none where a training is missing."""
    known = list(candidates)
    for _ in range(study.match):
        points = points_of(study, known, runner.trainings(), {})
        if any("trainings" in point.missing for point in points):
            return known
        scales = sorted({scale for point in _comparable(points) if (scale := _next(points, point)) is not None})
        known += [noise(scale) for scale in scales]
        runner.expect(known)
        runner.train(known, range(study.seeds))
    return known


def _comparable(points: Sequence[Point]) -> list[Point]:
    roles = ("none", "noise")
    return [p for p in points if p.candidate.role not in roles and p.accuracy is not None and not p.failed]


def _next(points: Sequence[Point], point: Point) -> float | None:
    assert point.accuracy is not None
    return next_scale(noise_accuracies(points), point.accuracy.mean)
