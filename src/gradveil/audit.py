"""An audit: every attack on every defense, one record per picture. What is in the journal is not done again."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil import toml
from gradveil.attacks.base import Attack
from gradveil.compute import Compute
from gradveil.defenses.base import Defense
from gradveil.errors import ConfigError
from gradveil.folder import RunFolder, private_files
from gradveil.journal import Journal
from gradveil.metrics import Metric
from gradveil.progress import Progress, Silent, listening
from gradveil.provenance import provenance
from gradveil.record import Attacker
from gradveil.scenario import Scenario
from gradveil.seeds import Seed
from gradveil.trial import Cell, Judge, Trial, run_cell
from gradveil.types import Batch

PLAIN = Compute()


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What is attacked, how, and how it is measured. `settings` is what config.toml will say of it."""

    scenario: Scenario
    defenses: Mapping[str, Defense]
    attacks: Mapping[str, Attack]
    metrics: tuple[Metric, ...]
    seed: int = 0
    gallery: Tensor | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def described(self) -> dict[str, Any]:
        """The settings; those of an audit that was built by hand are read off its parts."""
        if self.settings:
            return dict(self.settings)
        return {
            "seed": self.seed,
            "metrics": [metric.name for metric in self.metrics],
            "scenario": _described(self.scenario),
            "defense": {label: _value(defense) for label, defense in self.defenses.items()},
            "attack": {label: _value(attack) for label, attack in self.attacks.items()},
        }


def _described(scenario: Scenario) -> dict[str, Any]:
    """With the keys of a config file, as far as they can be known."""
    clients, examples = scenario.private.images.shape[:2]
    training = {name: value for name, value in asdict(scenario.training).items() if value is not None}
    return {
        "name": scenario.name,
        "model": type(scenario.model).__name__,
        "images": clients,
        "batch_size": examples,
        "local_steps": training.pop("steps"),
        "local_rate": training.pop("rate"),
        "local_batch_size": training.pop("batch_size", 0),
        **training,
        "labels": "known" if scenario.threat.knows_labels else "inferred",
        "attacker": "malicious" if scenario.threat.may_plant else "curious",
    }


def _value(method: Defense | Attack) -> dict[str, str]:
    """A method by its repr, without the addresses that differ from one process to the next."""
    if type(method) is Defense:
        return {"name": "none"}
    return {"name": type(method).__name__, "value": re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))}


def run(audit: Audit, folder: str | Path, compute: Compute = PLAIN, progress: Progress | None = None) -> None:
    """Run what is missing of the audit in `folder`. Nothing is written before all that can be checked is checked."""
    check(audit)
    progress = progress or Silent()
    config, home = toml.dump(audit.described()), RunFolder(Path(folder))
    origin = provenance(audit.scenario, audit.gallery, config, audit.seed, compute)
    home.check(config, origin)
    with private_files():
        home.create()
        with Journal(home.journal) as journal, compute.active():
            home.prepare(config, origin)
            _run_cells(audit, home, journal, compute, progress)
        home.finish()


def check(audit: Audit) -> None:
    """What would fail every trial of an attack, or every score, is bad input: better said before the run."""
    for kind, parts in (("defense", audit.defenses), ("attack", audit.attacks), ("metrics", audit.metrics)):
        if not parts:
            raise ConfigError(f"{kind}: none is given, give at least one")
    for label, attack in audit.attacks.items():
        if attack.plants and not audit.scenario.threat.may_plant:
            raise ConfigError(
                f"attack.{label}: changes the model, which a curious attacker cannot, use --attacker malicious"
            )
    if not audit.scenario.private.images.isfinite().all():
        raise ConfigError(f"scenario {audit.scenario.name}: a private picture has pixels that are not finite")
    first = audit.scenario.private.images[:1, :1].float().cpu()
    for metric in audit.metrics:
        metric.score(first, first)


def cells(audit: Audit, compute: Compute) -> Iterator[Cell]:
    """The cross product. Every defense meets an attacker who does not know it and one who does."""
    scenario = _placed(audit.scenario, compute)
    for label, defense in audit.defenses.items():
        attackers: tuple[Attacker, ...] = ("unaware",) if type(defense) is Defense else ("unaware", "adaptive")
        for attack in audit.attacks:
            for attacker in attackers:
                threat = replace(scenario.threat, knows_defense=attacker == "adaptive")
                yield Cell(
                    scenario=replace(scenario, threat=threat),
                    defense=label,
                    attack=attack,
                    attacker=attacker,
                    seed=Seed(audit.seed),
                    compute=compute,
                )


def _run_cells(audit: Audit, home: RunFolder, journal: Journal, compute: Compute, progress: Progress) -> None:
    done = {record.key for record in journal.records}
    missing = [cell for whole in cells(audit, compute) if (cell := _missing(whole, done)) is not None]
    judge = Judge(audit.metrics, _blank(audit))
    progress.begin(len(missing))
    last: tuple[Cell, list[Trial]] | None = None
    try:
        for cell in missing:
            progress.start(cell.name, len(cell.scenario.names))
            defense, attack = audit.defenses[cell.defense], audit.attacks[cell.attack]
            if last is not None and cell.repeats(last[0], defense, attack):
                trials = [trial.told_again(cell) for trial in last[1]]
            else:
                with listening(progress.step):
                    trials = run_cell(cell, defense, attack, judge)
            last = cell, trials
            _keep(trials, home, journal, progress, done)
    finally:
        progress.end()


def _keep(trials: list[Trial], home: RunFolder, journal: Journal, progress: Progress, done: set[str]) -> None:
    for trial in trials:
        if trial.pictures:  # before the records, so that no record names a file that is not there
            home.save_pictures(trial.file, trial.pictures)
        for record in trial.records:
            if record.key not in done:
                journal.append(record)
    records = [record for trial in trials for record in trial.records]
    progress.done(len(records), sum(record.status == "failed" for record in records))


def _missing(cell: Cell, done: set[str]) -> Cell | None:
    """The cell with only those clients of which a record is missing; None if there are none."""
    scenario = cell.scenario
    examples = range(scenario.private.images.shape[1])
    todo = [i for i, name in enumerate(scenario.names) if any(cell.key(name, e) not in done for e in examples)]
    if not todo:
        return None
    private = Batch(scenario.private.images[todo], scenario.private.labels[todo])
    return replace(cell, scenario=replace(scenario, private=private, names=tuple(scenario.names[i] for i in todo)))


def _placed(scenario: Scenario, compute: Compute) -> Scenario:
    """A copy on the device and in the precision of the run."""

    def move(batch: Batch) -> Batch:
        return Batch(*(x.to(compute.device, compute.dtype) for x in batch))

    model = copy.deepcopy(scenario.model).to(compute.device, compute.dtype)
    public = None if scenario.public is None else move(scenario.public)
    return replace(scenario, model=model, private=move(scenario.private), public=public)


def _blank(audit: Audit) -> Tensor:
    """The mean color of what is public: the best picture of one who has not seen the update. [channel, 1, 1]"""
    known = audit.gallery if audit.scenario.public is None else audit.scenario.public.images
    if known is None or not len(known):
        return torch.full((audit.scenario.private.images.shape[2], 1, 1), 0.5)
    return known.float().cpu().mean((0, 2, 3))[:, None, None]
