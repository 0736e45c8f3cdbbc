"""An audit: every attack on every defense, one record per picture. What is in the journal is not done again."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil import toml
from gradveil.attacks.base import Attack
from gradveil.client import in_client_mode
from gradveil.compute import Compute
from gradveil.defenses.base import Defense
from gradveil.errors import ConfigError, NotApplicableError
from gradveil.folder import RunFolder, private_files
from gradveil.generators.provenance import check_not_trained_on
from gradveil.journal import Journal
from gradveil.metrics import Metric
from gradveil.plan import UNDEFENDED, Cell, Grid, clients_of, diagnostic
from gradveil.progress import Progress, Silent
from gradveil.provenance import hash_models, provenance, sha256
from gradveil.runner import Runner, fanout_of
from gradveil.scenario import Scenario
from gradveil.seeds import Seed
from gradveil.server import observe
from gradveil.traffic import update_bytes
from gradveil.trial import Judge
from gradveil.types import Batch

PLAIN = Compute()
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
    also: tuple[Scenario, ...] = ()  # the same with one thing changed
    early: nn.Module | None = None  # the model before training, for the positive control
    controls: bool = True  # without them no verdict is possible
    convergence: bool = False  # whether every attack is also given twice its steps
    sequence: bool = False  # attacks in order: who does not apply is left out, pictures that leaked drop out
    settings: Mapping[str, Any] = field(default_factory=dict)
    declared: tuple[str, ...] = ()  # settings that the user stated; the rest is assumed
    stand_in: Scenario | None = None  # for the positive control, where the private pictures are not known
    origin: Mapping[str, Any] = field(default_factory=dict)  # what provenance.json will say beyond the usual

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
        "training": "known" if scenario.threat.knows_training else "estimated",
        "rounds": scenario.threat.rounds,
        "aggregate": scenario.aggregate,
        "encodings": "seen" if scenario.threat.sees_encodings else "hidden",
        "attacker": "malicious" if scenario.threat.may_plant else "curious",
    }


def _value(method: Defense | Attack) -> dict[str, str]:
    """A method by its repr, without the addresses that differ from one process to the next."""
    if type(method) is Defense:
        return {"name": "none"}
    return {"name": type(method).__name__, "value": re.sub(" at 0x[0-9a-fA-F]+", "", repr(method))}


def run(audit: Audit, folder: str | Path, compute: Compute = PLAIN, progress: Progress | None = None) -> None:
    """Run what is missing of the audit in `folder`. Nothing is written before all that can be checked is checked."""
    check(audit, compute)
    audit, left_out = applicable(audit)
    config, home = toml.dump(audit.described()), RunFolder(Path(folder))
    shard = home.stored().get("shard", compute.shard)
    groups = list(shards(audit, compute, shard))
    origin = origin_of(audit, compute) | {
        "shard": shard,
        "trials": sum(len(cell.own_keys) for group in groups for cell in group),
        "order": list(audit.attacks) if audit.sequence else [],
        "left_out": left_out,
        "scenarios": roles(audit, compute, shard),
        "declared": list(audit.declared),
        "metric_weights": {m.name: asdict(m.source) for m in audit.metrics if m.source is not None},
        "update_bytes": home.stored().get("update_bytes") or traffic(audit, compute),
        **audit.origin,
    }
    home.check(config, origin)
    with private_files(), home.told_if_full():
        home.create()
        with Journal(home.journal) as journal, compute.active():
            home.prepare(config, origin)
            runner = Runner(home, journal, judge_of(audit), compute, progress or Silent())
            with fanout_of(compute).held():
                runner.run(waves(groups, list(audit.attacks)) if audit.sequence else [groups])
        home.finish()


def traffic(audit: Audit, compute: Compute) -> dict[str, dict[str, int]]:
    """By scenario and defense: the bytes that one client sends in one round; of a large model, as audited only."""
    attack, plain = next(iter(audit.attacks.values())), replace(compute, precision="float32")
    small = sum(p.numel() for p in audit.scenario.model.parameters()) <= QUICKLY_ENCODED
    scenarios = (audit.scenario, *audit.also) if small else (audit.scenario,)
    first = [_placed(clients_of(scenario, slice(1)), plain) for scenario in scenarios]
    return {one.name: update_bytes(one, audit.defenses, attack, Seed(audit.seed)) for one in first}


def origin_of(audit: Audit, compute: Compute) -> dict[str, Any]:
    """Where the audit comes from: what a run is refused by if it changes, and what it is computed again by."""
    models = {s.name: s.model for s in (audit.scenario, *audit.also)} | {"early": audit.early or audit.scenario.model}
    config = toml.dump(audit.described())
    return provenance(audit.scenario, audit.gallery, config, audit.seed, compute, audit.also) | {
        "model_sha256": hash_with(hash_models(models), _networks(audit)),
        "chunk": compute.chunk,
        "threads": 1 if compute.spread else torch.get_num_threads(),
    }


def check(audit: Audit, compute: Compute = PLAIN) -> None:
    """What would fail every trial of an attack, or every score, is bad input: better said before the run."""
    for kind, parts in (("defense", audit.defenses), ("attack", audit.attacks), ("metrics", audit.metrics)):
        if not parts:
            raise ConfigError(f"{kind}: none is given, give at least one")
    if type(audit.defenses.get(UNDEFENDED, Defense())) is not Defense:
        raise ConfigError(f"defense.{UNDEFENDED}: is the label of the undefended model, choose another label")
    if compute.workers and compute.device != "cpu":
        raise ConfigError("--workers: a GPU cannot be shared by processes, use --device cpu or leave it out")
    if compute.workers and torch.cuda.is_initialized():
        raise ConfigError("--workers: this process has used a GPU and can no longer be forked, start another one")
    if compute.ray:
        fanout_of(compute).check(compute.device)
    if compute.limit is not None and not compute.workers:
        raise ConfigError("--limit: only a process of its own can be ended, use --workers 1 or more")
    for label, attack in audit.attacks.items():
        if attack.plants and not audit.scenario.threat.may_plant:
            raise ConfigError(
                f"attack.{label}: changes the model, which a curious attacker cannot, use --attacker malicious"
            )
        if attack.needs_views and not any(defense.views() for defense in audit.defenses.values()):
            raise ConfigError(f"attack.{label}: no defense here has a policy to know, add one (ats) or leave it out")
        if attack.needs_mixture and not any(defense.mixes for defense in audit.defenses.values()):
            raise ConfigError(f"attack.{label}: no defense here mixes pictures, add one (mixup) or leave it out")
    for scenario in (audit.scenario, *audit.also):
        model = in_client_mode(scenario.model, scenario.training)
        for defense in audit.defenses.values():
            defense.bind(scenario).check(model)
        if not scenario.private.images.isfinite().all():
            raise ConfigError(f"scenario {scenario.name}: a private picture has pixels that are not finite")
        for file in _networks(audit) if scenario.has_truth else ():
            check_not_trained_on(file, scenario.private.images)
    images, labels = (x[:1, :1].float().cpu() for x in audit.scenario.private)
    for metric in audit.metrics:
        tried = images if metric.about == "pictures" else labels
        metric.score(tried, tried)


def hash_with(digest: str, files: list[str]) -> str:
    """Networks that attacks bring along count as models: a run does not go on with others."""
    return sha256("".join([digest, *(sha256(Path(file).read_bytes()) for file in files)]).encode()) if files else digest


def _networks(audit: Audit) -> list[str]:
    """Files that attacks bring along, each once. Only here are they held against the truth; attacks never see it."""
    return sorted({file for attack in audit.attacks.values() for file in attack.networks()})


def applicable(audit: Audit) -> tuple[Audit, dict[str, str]]:
    """Of a sequence, the attacks that have something to work on, and why the others have not."""
    left_out: dict[str, str] = {}
    for label, attack in audit.attacks.items() if audit.sequence else ():
        try:
            attack.check(observe(clients_of(audit.scenario, slice(1)), Defense(), attack, Seed(audit.seed))[0])
        except NotApplicableError as error:
            left_out[label] = str(error)
    kept = {label: attack for label, attack in audit.attacks.items() if label not in left_out}
    if not kept:
        raise ConfigError(f"attack: none applies to this model, {'; '.join(left_out.values())}")
    return replace(audit, attacks=kept, settings=audit.described()), left_out


def waves(groups: list[list[Cell]], order: list[str]) -> list[list[list[Cell]]]:
    """Controls first, since they say what has leaked; then one attack after the other."""
    controls = [group for group in groups if group[0].control]
    return [controls, *([g for g in groups if not g[0].control and g[0].attack == label] for label in order)]


def shards(audit: Audit, compute: Compute, size: int) -> Iterator[list[Cell]]:
    """What is run at once. Attackers on the same updates come together: one may only repeat the other."""
    for group in plan(audit, compute, size):
        yield from (list(together) for together in zip(*(cell.shards(size) for cell in group), strict=True))


def plan(audit: Audit, compute: Compute, size: int | None = None) -> Iterator[list[Cell]]:
    """The audited cells, then the controls."""
    parts = {"defenses": audit.defenses, "attacks": audit.attacks, "compare": audit.controls}
    grid = Grid(seed=Seed(audit.seed), compute=compute, **parts)
    audited = [_placed(scenario, compute) for scenario in (audit.scenario, *audit.also)]
    yield from chain.from_iterable(map(grid.cells, audited))
    if not audit.controls:
        return
    if (easiest := positive_control(audit, compute, size)) is not None:
        yield from grid.undefended(easiest)
        yield from grid.controls(easiest, ("prior",))
    yield from grid.controls(audited[0], ("prior", "random", "doubled") if audit.convergence else ("prior", "random"))
    for scenario in audited[1:]:
        yield from grid.controls(scenario, ("prior",))


def positive_control(audit: Audit, compute: Compute, size: int | None = None) -> Scenario | None:
    """Where these attacks must succeed to be believed, one shard; None if the audit itself goes there."""
    if not audit.scenario.has_truth:
        stand_in = audit.stand_in
        return None if stand_in is None else _placed(clients_of(stand_in, slice(size or compute.shard)), compute)
    undefended = any(type(defense) is Defense for defense in audit.defenses.values())
    if undefended and any(s.regime == "diagnostic" for s in (audit.scenario, *audit.also)):
        return None
    easiest = diagnostic(audit.scenario, early=audit.early is not None)
    if audit.early is not None:
        easiest = replace(easiest, model=audit.early)
    return _placed(clients_of(easiest, slice(size or compute.shard)), compute)


def roles(audit: Audit, compute: Compute, size: int | None = None) -> dict[str, dict[str, Any]]:
    """Every scenario by its name: what it is there for, and what a verdict must know of it."""
    found = {s.name: _role(s, "audited" if s is audit.scenario else "variation") for s in (audit.scenario, *audit.also)}
    easiest = positive_control(audit, compute, size) if audit.controls else None
    return found | ({easiest.name: _role(easiest, "control")} if easiest is not None else {})


def _role(scenario: Scenario, role: str) -> dict[str, Any]:
    return {"role": role, "regime": scenario.regime, "trained": scenario.trained, **_described(scenario)}


def _placed(scenario: Scenario, compute: Compute) -> Scenario:
    """A copy on the device and in the precision of the run."""

    def move(batch: Batch) -> Batch:
        return Batch(*(x.to(compute.device, compute.dtype) for x in batch))

    model = copy.deepcopy(scenario.model).to(compute.device, compute.dtype)
    public = None if scenario.public is None else move(scenario.public)
    received = None if scenario.received is None else scenario.received.to(compute.device, compute.dtype)
    return replace(scenario, model=model, private=move(scenario.private), public=public, received=received)


def judge_of(audit: Audit) -> Judge:
    return Judge(audit.metrics, _blank(audit))


def _blank(audit: Audit) -> Tensor:
    """The mean color of what is public: the best picture of one who has not seen the update. [channel, 1, 1]"""
    known = audit.gallery if audit.scenario.public is None else audit.scenario.public.images
    if known is None or not len(known):
        return torch.full((audit.scenario.private.images.shape[2], 1, 1), 0.5)
    return known.float().cpu().mean((0, 2, 3))[:, None, None]
