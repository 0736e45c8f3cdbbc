"""An audit: every attack on every defense, one record per picture. What is in the journal is not done again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.audit.anytime import Anytime
from gradveil.audit.lineup import gallery_of, run_lineups
from gradveil.audit.lineup_plan import LineUpCell, Size, describe_lineups, plan_lineups
from gradveil.audit.pieces import all_pieces, clients_at_once, measure_step
from gradveil.audit.plan import Cell, clients_of
from gradveil.audit.runner import count_missing, run_waves
from gradveil.audit.schedule import place, planned, roles, shards, waves
from gradveil.audit.score import Judge
from gradveil.audit.speed import Speed
from gradveil.audit.tuning import describe_tuning
from gradveil.audit.upload_size import update_bytes
from gradveil.audit.validate import check, networks
from gradveil.audit.verdict.leak import WHOLE
from gradveil.core import toml
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.hashes import hash_models, sha256
from gradveil.core.own_loss import OwnLoss
from gradveil.core.scenario import Scenario, describe
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.time_limit import TimeLimit
from gradveil.dp.audited_round import round_accounts, round_certificates
from gradveil.dp.trade_off import CANDIDATES
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import provenance
from gradveil.experiment.runner import Runner
from gradveil.metrics import METRICS, Metric

QUICKLY_ENCODED = 1_000_000  # parameters: about a second for each defense


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What is attacked, how, and how it is measured. `settings` is what config.toml will say of it."""

    scenario: Scenario
    defenses: Mapping[str, Defense]
    attacks: Mapping[str, Attack]
    metrics: tuple[Metric, ...]
    seed: int = 0
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None  # [picture, class]
    lineup: Size = "auto"  # candidates of a line-up, the original included; 0: none is held
    also: tuple[Scenario, ...] = ()  # the same with one thing changed
    early: nn.Module | None = None  # the model before training, for the positive control
    controls: bool = True  # without them no verdict is possible
    convergence: bool = False  # whether every attack is also given twice its steps
    sequence: bool = False  # attacks in order: who does not apply is left out, pictures recovered whole drop out
    settings: Mapping[str, Any] = field(default_factory=dict)
    declared: tuple[str, ...] = ()  # settings that the user stated; the rest is assumed
    tuned_on: tuple[str, ...] = ()  # runs or files of pictures on which settings of attacks were chosen
    stand_in: Scenario | None = None  # for the positive control, where the private pictures are not known
    origin: Mapping[str, Any] = field(default_factory=dict)  # what provenance.json will say beyond the usual
    limit: TimeLimit | None = None  # by when it ends, with what it has: see `gradveil.audit.anytime`

    def describe(self) -> dict[str, Any]:
        """The settings; those of an audit that was built by hand are read off its parts."""
        if self.settings:
            return dict(self.settings)
        return {
            "seed": self.seed,
            "metrics": [metric.name for metric in self.metrics],
            "scenario": describe(self.scenario),
            "defense": {label: _value(defense) for label, defense in self.defenses.items()},
            "attack": {label: _value(attack) for label, attack in self.attacks.items()},
        }


def _value(method: Defense | Attack) -> dict[str, str]:
    """A method by its repr, without the addresses that differ from one process to the next."""
    if type(method) is Defense:
        return {"name": "none"}
    return {"name": type(method).__name__, "value": re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))}


class AuditExperiment(Experiment[None]):
    """An audit on the way that all experiments go. The verdict is made of its folder: `gradveil.report.conclude`."""

    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.left_out: Mapping[str, str] = {}  # attacks of a sequence that do not apply, and why
        self.shard, self.update_bytes = 0, None
        self.piece: int | None = None  # clients in a piece of a shard, of a run that had limited time
        self.speed, self.compute = Speed(), Compute()
        self.groups: list[list[Cell]] = []
        self.lineups: list[LineUpCell] = []

    def pool(self, compute: Compute) -> Pool:
        return Pool.of(compute, all_threads=True)

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        check(self.audit, compute)
        self.audit, self.left_out = applicable(self.audit)
        stored = home.read_provenance()
        self.shard, self.update_bytes = stored.get("shard", compute.shard), stored.get("update_bytes")
        self.groups = list(shards(self.audit, compute, self.shard))
        self.lineups = list(plan_lineups(self.audit, compute, self.shard))
        self.piece, self.compute = stored.get("piece"), compute
        if (limit := self.audit.limit) is not None:
            self.speed.step = measure_step(self.audit, compute, limit, judge_of(self.audit))
            self.piece = self.piece or clients_at_once(self.audit, self.speed.step, self.shard)

    def to_tables(self) -> Mapping[str, Any]:
        return self.audit.describe()

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        audit = self.audit
        accounts = round_accounts((audit.scenario, *audit.also), audit.defenses, candidates=candidates_of(audit))
        return origin_of(audit, compute) | {
            "shard": self.shard,
            **({} if self.piece is None else {"piece": self.piece}),
            **({} if audit.limit is None else {"seconds": audit.limit.seconds}),
            "trials": sum(len(cell.own_keys) for cell in self.cells),
            "plan": planned(self.cells),
            "lineup": describe_lineups(self.lineups),
            "order": list(audit.attacks) if audit.sequence else [],
            "whole": WHOLE,
            "uses": {label: sorted(attack.uses) for label, attack in audit.attacks.items()},
            "searches": [label for label, attack in audit.attacks.items() if attack.scaled(2.0) is not None],
            "left_out": self.left_out,
            "scenarios": roles(audit, compute, self.shard),
            "declared": list(audit.declared),
            "metric_weights": {m.name: asdict(m.source) for m in audit.metrics if m.source is not None},
            "metrics": {m.name: m.to_json() for m in audit.metrics if m.name not in METRICS},
            "update_bytes": self.update_bytes or traffic(audit, compute),
            **({"privacy": accounts} if accounts else {}),
            "certificates": certificates_of(audit),
            **({"tuning": describe_tuning(audit.tuned_on, audit.describe()["defense"])} if audit.tuned_on else {}),
            **audit.origin,
        }

    def play(self, runner: Runner) -> None:
        if self.audit.limit is not None:
            return self._play_in_time(runner, self.audit.limit)
        if self.piece is not None:
            self.groups = all_pieces(self.groups, self.piece)
        first, *others = waves(self.groups, list(self.audit.attacks)) if self.audit.sequence else [[], self.groups]
        missing = count_missing(runner, [first, *others])
        runner.progress.begin(missing + sum(not runner.is_done(c.own_keys) for c in self.lineups))
        judge = judge_of(self.audit)
        run_waves(runner, [first], judge)  # pictures to look at, soon
        run_lineups(runner, self.lineups, gallery_of(self.audit))
        run_waves(runner, others, judge)

    def _play_in_time(self, runner: Runner, limit: TimeLimit) -> None:
        runner.progress.begin(0)
        size = self.piece or self.shard
        run = Anytime(runner=runner, audit=self.audit, compute=self.compute, limit=limit, judge=judge_of(self.audit),
                      gallery=gallery_of(self.audit), shard=self.shard, size=size, speed=self.speed)  # fmt: skip
        run.play(self.groups, self.lineups)

    def closing(self) -> Mapping[str, Any]:
        return {} if self.audit.limit is None else {"spent": round(self.audit.limit.elapsed, 1)}

    @property
    def cells(self) -> list[Cell | LineUpCell]:
        """All that is run, what is cheap first."""
        return [*self.lineups, *chain.from_iterable(self.groups)]


def run_audit(audit: Audit, folder: str | Path, compute: Compute = Compute(), progress: Progress | None = None) -> None:
    """Run what is missing of the audit in `folder`. Nothing is written before all that can be checked is checked."""
    run(AuditExperiment(audit), folder, compute, progress)


def traffic(audit: Audit, compute: Compute) -> dict[str, dict[str, int]]:
    """By scenario and defense: the bytes that one client sends in one round; of a large model, as audited only."""
    attack, plain = next(iter(audit.attacks.values())), replace(compute, precision="float32")
    small = sum(p.numel() for p in audit.scenario.model.parameters()) <= QUICKLY_ENCODED
    scenarios = (audit.scenario, *audit.also) if small else (audit.scenario,)
    first = [place(clients_of(scenario, slice(1)), plain) for scenario in scenarios]
    return {one.name: update_bytes(one, audit.defenses, attack, Seed(audit.seed)) for one in first}


def certificates_of(audit: Audit) -> dict[str, dict[str, Any]]:
    """By scenario and defense: the most that any server identifies among the gallery and the original."""
    found = round_certificates((audit.scenario, *audit.also), audit.defenses, candidates_of(audit))
    return {scene: {label: one.to_json() for label, one in row.items()} for scene, row in found.items()}


def candidates_of(audit: Audit) -> int:
    """Among how many pictures the original is sought."""
    return len(audit.gallery) + 1 if audit.gallery is not None and len(audit.gallery) else CANDIDATES


def origin_of(audit: Audit, compute: Compute) -> dict[str, Any]:
    """Where the audit comes from: what a run is refused by if it changes, and what it is computed again by."""
    models = {s.name: s.model for s in (audit.scenario, *audit.also)} | {"early": audit.early or audit.scenario.model}
    config = toml.dump(audit.describe())
    return provenance(audit.scenario, audit.gallery, config, audit.seed, compute, audit.also) | {
        "model_sha256": hash_with(hash_models(models), [*networks(audit), *files_of_losses(audit)]),
        "chunk": compute.chunk,
        "threads": 1 if compute.spread else torch.get_num_threads(),
    }


def files_of_losses(audit: Audit) -> list[str]:
    """Of losses that are the clients' own: a changed one is another model."""
    losses = [one.training.loss for one in (audit.scenario, *audit.also)]
    files = [str(loss.rpartition(":")[0]) for loss in losses if isinstance(loss, OwnLoss) and loss.function is not None]
    return sorted({file for file in files if Path(file).is_file()})


def hash_with(digest: str, files: list[str]) -> str:
    """Networks that attacks bring along count as models: a run does not go on with others."""
    return sha256("".join([digest, *(sha256(Path(file).read_bytes()) for file in files)]).encode()) if files else digest


def applicable(audit: Audit) -> tuple[Audit, dict[str, str]]:
    """Of a sequence, the attacks that have something to work on, and why the others have not."""
    left_out: dict[str, str] = {}
    for label, attack in audit.attacks.items() if audit.sequence else ():
        try:
            attack.check(observe(clients_of(audit.scenario, slice(1)), Defense(), attack, Seed(audit.seed))[0])
        except NotApplicableError as error:
            left_out[label] = str(error)
    remaining = {label: attack for label, attack in audit.attacks.items() if label not in left_out}
    if not remaining:
        raise ConfigError(f"none applies to this model, {'; '.join(left_out.values())}", key="attack")
    return replace(audit, attacks=remaining, settings=audit.describe()), left_out


def judge_of(audit: Audit) -> Judge:
    return Judge(audit.metrics, _blank(audit), None if audit.gallery is None else audit.gallery.float().cpu())


def _blank(audit: Audit) -> Tensor:
    """The mean color of what is public: the best picture of one who has not seen the update. [channel, 1, 1]"""
    known = audit.gallery if audit.scenario.public is None else audit.scenario.public.images
    if known is None or not len(known):
        return torch.full((audit.scenario.private.images.shape[2], 1, 1), 0.5)
    return known.float().cpu().mean((0, 2, 3))[:, None, None]
