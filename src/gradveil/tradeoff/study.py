"""Accuracy against leakage (ROG, figure 9a), journaled and resumed like an audit.

train every defense with the same seeds -> attack the models of that training on the clients' own pictures
-> noise at other scales until it costs what each defense costs -> points, front, comparison with noise
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradveil.audit.runner import fanout_of
from gradveil.config.build import model_of
from gradveil.core import toml
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files
from gradveil.core.hashes import hash_models
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.experiment.folder import REPORT, RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.progress import Progress, Silent
from gradveil.experiment.provenance import provenance
from gradveil.tradeoff.defenses import Candidate, noise
from gradveil.tradeoff.front import front
from gradveil.tradeoff.leakage import Auditor
from gradveil.tradeoff.matching import next_scale
from gradveil.tradeoff.outcome import Outcome, Point
from gradveil.tradeoff.points import flags_of, noise_accuracies, place, points_of
from gradveil.tradeoff.runner import Desk
from gradveil.tradeoff.settings import Study, checked
from gradveil.tradeoff.split import Material, gather
from gradveil.tradeoff.training import Trainer

STUDY, POINTS, MODELS, UNFINISHED, RESULT = "study", "points", "models", "unfinished", "tradeoff.json"
OURS = {STUDY, POINTS, MODELS, UNFINISHED, RESULT, REPORT}
TOLD = ("gradveil", "torch", "precision", "model_sha256", "data_sha256", "config_sha256")


def run(
    study: Study,
    folder: str | Path,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Run what is missing of the study in `folder`, and write tradeoff.json there.

    After `seconds` nothing new is begun; the points that are there by then are told, and the same call goes on.
    """
    until = float("inf") if seconds is None else time.monotonic() + seconds
    candidates = checked(study)
    fanout_of(compute).check(compute.device)
    _check_folder(Path(folder))
    material, models = prepared(study)
    check_defenses(study, candidates, material, models[0])
    config = toml.dump(study.settings())
    origin = _origin(study, config, material, models, compute)
    home = RunFolder(Path(folder) / STUDY)
    home.check(config, origin)
    with private_files(), home.told_if_full():
        home.create()
        for name in (POINTS, MODELS):
            (Path(folder) / name).mkdir(exist_ok=True)
        with Journal(home.journal) as journal, compute.active(), fanout_of(compute).held():
            home.prepare(config, origin)
            desk = _desk(study, Path(folder), journal, compute, progress or Silent(), material, models)
            desk.until = until
            found = _found(study, candidates, desk)
        home.finish()
    outcome = replace(found, provenance={key: origin[key] for key in TOLD})
    outcome.write(Path(folder) / RESULT)
    return outcome


def prepared(study: Study) -> tuple[Material, tuple[nn.Module, ...]]:
    """The data, and an untrained model for every seed."""
    scenario = study.audit_config(study.candidates()[0]).scenario
    material = gather(scenario)
    each = [replace(scenario, model_seed=study.federation(number).seed) for number in range(study.seeds)]
    return material, tuple(model_of(one, material.dataset).eval() for one in each)


def check_defenses(study: Study, candidates: Sequence[Candidate], material: Material, model: nn.Module) -> None:
    """What a defense cannot act on is said before anything is trained."""
    training = study.federation(0).local_training(study.victim_batch, 0.0)
    private = Batch(*(x[: study.victim_batch][None] for x in material.training))
    scenario = Scenario(name="check", model=model, private=private, names=("client-0",), training=training,
                        public=material.public)  # fmt: skip
    for one in candidates:
        try:
            one.build().bind(scenario).check(in_client_mode(model, training))
        except ConfigError as error:
            raise ConfigError(f"--defense: {one.label}: {error}") from error


def _check_folder(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder}: not a folder, choose another `folder`")
    there = {path.name.removesuffix(".part") for path in folder.iterdir()} if folder.exists() else set()
    if there - OURS or (there and STUDY not in there):
        raise ConfigError(f"{folder}: exists and is not the folder of a study, choose another `folder`")


def _origin(
    study: Study, config: str, material: Material, models: Sequence[nn.Module], compute: Compute
) -> dict[str, Any]:
    """Where the points come from: the untrained models and all pictures."""
    trained = Scenario(name="training", model=models[0], private=material.training, names=())
    validated = replace(trained, name="validation", private=material.validation)
    origin = provenance(trained, None, config, study.seed, compute, (validated,))
    threads = 1 if compute.spread or compute.device == "cpu" else torch.get_num_threads()
    each = {str(number): model for number, model in enumerate(models)}
    return origin | {"model_sha256": hash_models(each), "threads": threads}


def _desk(
    study: Study,
    folder: Path,
    journal: Journal,
    compute: Compute,
    progress: Progress,
    material: Material,
    models: tuple[nn.Module, ...],
) -> Desk:
    unfinished = None if compute.ray else folder / UNFINISHED
    trainer = Trainer(study=study, material=material, models=models, device=compute.device, folder=unfinished,
                      precision="tf32" if compute.precision == "tf32" else "float32")  # fmt: skip
    auditor = Auditor(study=study, material=material, models=models, weights=folder / MODELS, compute=compute)
    return Desk(points=folder / POINTS, journal=journal, fanout=fanout_of(compute), progress=progress,
                trainer=trainer, auditor=auditor)  # fmt: skip


def _found(study: Study, candidates: Sequence[Candidate], desk: Desk) -> Outcome:
    """Trainings that are attacked first, so that a study cut short has points; then the others, then the noise."""
    desk.expect(candidates)
    try:
        desk.train(candidates, range(study.attacked_seeds))
        desk.audit(candidates)
        desk.train(candidates, range(study.seeds))
        everybody = _matched(study, candidates, desk)
        desk.audit(everybody)
    finally:
        desk.progress.end()
    points = points_of(study, everybody, desk.trainings(), desk.audits())
    ahead = front({point.label: place(point, study.measure) for point in points if point.on_front})
    return Outcome(
        settings=study.settings()["tradeoff"],
        provenance={},
        points=points,
        front=ahead,
        flags=flags_of(study, points),
    )


def _matched(study: Study, candidates: Sequence[Candidate], desk: Desk) -> list[Candidate]:
    """The candidates and noise at the scales that the accuracies ask for; none where a training is missing."""
    known = list(candidates)
    for _ in range(study.match):
        points = points_of(study, known, desk.trainings(), {})
        if any("trainings" in point.missing for point in points):
            return known
        scales = sorted({scale for point in _compared(points) if (scale := _next(points, point)) is not None})
        known += [noise(scale) for scale in scales]
        desk.expect(known)
        desk.train(known, range(study.seeds))
    return known


def _compared(points: Sequence[Point]) -> list[Point]:
    roles = ("none", "noise")
    return [p for p in points if p.candidate.role not in roles and p.accuracy is not None and not p.failed]


def _next(points: Sequence[Point], point: Point) -> float | None:
    assert point.accuracy is not None
    return next_scale(noise_accuracies(points), point.accuracy.mean)
