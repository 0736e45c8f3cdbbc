"""Search for transformation policies (ATS, algorithm 1), journaled and resumed like an audit.

    sample policies -> FSIM filter -> accuracy score on an untrained model, filter -> privacy score on a semi-trained
    model -> the best, and the hybrid of the best without a common transformation -> attack them for real

Differs from algorithm 1: every candidate that passes is scored, also the first n; policies that do the same are scored
once; all policies see the same random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core import toml
from gradveil.core.compute import Compute
from gradveil.core.files import private_files
from gradveil.core.scenario import Scenario
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel.pool import Fanout
from gradveil.experiment.progress import Progress, Silent
from gradveil.experiment.provenance import provenance
from gradveil.search import confirm
from gradveil.search.context import Ground, prepared
from gradveil.search.curves import Watch, curves
from gradveil.search.outcome import Outcome, Scored
from gradveil.search.privacy import combined
from gradveil.search.race import blocks, leaders, survivors, whole, yardsticks
from gradveil.search.ranking import Ranked, hybrid, rank
from gradveil.search.runner import Desk
from gradveil.search.scoring import Task
from gradveil.search.settings import Search, checked
from gradveil.search.threshold import bar_of
from gradveil.transforms.policy import Policy

__all__ = ["Search", "search"]
ON_A_CPU = 32  # pictures at once: fixed, since memory that happens to be free must not move a number
TOLD = ("gradveil", "torch", "precision", "model_sha256", "data_sha256", "config_sha256")


def search(
    asked: Search,
    folder: str | Path,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    ray: str = "",
) -> Outcome:
    """Search in `folder`, where what is already there is not done again. `ray` is the address of a Ray cluster."""
    config, library = checked(asked)
    fanout = Fanout(workers=compute.workers, ray=ray, gpus=float(compute.device.startswith("cuda")))
    fanout.check(compute.device)
    alone = replace(compute, workers=0, chunk=compute.chunk or (ON_A_CPU if compute.device == "cpu" else None))
    shown = progress or Silent()
    shown.begin(_stages(asked))
    try:
        ground = prepared(asked, config, library, alone, shown)
        return _in_folder(ground, RunFolder(Path(folder)), fanout, shown)
    finally:
        shown.end()


def _stages(asked: Search) -> int:
    privacy = len(_parts(asked)) if asked.strategy == "race" else 1
    return 3 + privacy + (asked.fsim is not None) + (asked.confirm > 0)


def _parts(asked: Search) -> tuple[range, ...]:
    return blocks(asked.images) if asked.strategy == "race" else whole(asked.images)


def _in_folder(ground: Ground, home: RunFolder, fanout: Fanout, shown: Progress) -> Outcome:
    config = toml.dump(ground.asked.settings())
    origin = _origin(ground, config)
    home.check(config, origin)
    with private_files(), home.told_if_full():
        home.create()
        with Journal(home.journal) as journal, ground.compute.active():
            home.prepare(config, origin)
            parts = _parts(ground.asked)
            desk = Desk(home=home, journal=journal, fanout=fanout, progress=shown, scorer=ground.scorer, parts=parts)
            outcome = _found(ground, desk)
            outcome = replace(outcome, curves=_curves(ground, outcome))
        home.finish()
    return replace(outcome, settings=ground.asked.settings()["search"], provenance={k: origin[k] for k in TOLD})


def _origin(ground: Ground, config: str) -> dict[str, Any]:
    """Where the scores come from. The pictures of the accuracy score are decided by the data and the seed."""
    scored = Scenario(name=ground.name, model=ground.semi_trained, private=ground.material.scored, names=())
    held_out = replace(scored, name="attacked", private=ground.material.attacked)
    return provenance(scored, ground.material.gallery, config, ground.asked.seed, ground.compute, (held_out,))


def _found(ground: Ground, desk: Desk) -> Outcome:
    """Algorithm 1, then the hybrid and the confirmation."""
    asked, all_policies = ground.asked, list(ground.policies)
    like = all_policies
    if asked.fsim is not None:
        desk.run("fsim", [Task("fsim", str(policy)) for policy in all_policies])
        like = desk.above("fsim", all_policies, asked.fsim)
    ahead = _rung(ground, desk, like, desk.parts[0]) if asked.strategy == "race" else like
    bar = bar_of(desk, ahead, asked.threshold)
    fine = desk.above("accuracy", ahead, bar.value)
    pool = [policy for policy in _privacy(ground, desk, fine) if desk.areas(policy, asked.images) is not None]
    ranked = _ranked(ground, desk, pool)
    best = ranked[: asked.top]
    mixed = hybrid([ground.policies[one.policy][0] for one in ranked], asked.hybrid) if ranked else None
    chosen = confirm.chosen(ranked, asked.confirm) if asked.confirm else ([], [])
    seen = _attacked(ground, desk, [one.policy for some in chosen for one in some], mixed)
    shown = [*best, *(one for one in chosen[0] if one not in best)]
    desk.run("fsim", [Task("fsim", str(one.policy)) for one in (*shown, *chosen[1])])
    rows = {one.policy: _scored(ground, desk, one, seen) for one in (*shown, *chosen[1])}
    return Outcome(
        library=ground.library,
        hybrid="" if mixed is None else str(mixed),
        policies=tuple(rows[one.policy] for one in best),
        others=tuple(row for policy, row in rows.items() if policy not in {one.policy for one in best}),
        hybrid_confirmed=() if mixed is None else seen.get(str(mixed), ()),
        undefended=seen.get(confirm.UNDEFENDED, ()),
        validation=confirm.validated([row for row in rows.values() if row.confirmed]),
        candidates=sum(map(len, ground.policies.values())),
        distinct=len(all_policies),
        distorted=len(all_policies) - len(like),
        passed=len(fine),
        threshold=bar.value,
        untransformed=bar.untransformed,
        rule=bar.rule,
        failed=desk.failed,
        scored=len(pool),
    )


def _privacy(ground: Ground, desk: Desk, policies: Sequence[Policy]) -> list[Policy]:
    """Score them on all pictures, or go on with the race on more and more of them; who is left at the end."""
    alive, parts = list(policies), desk.parts
    if ground.asked.strategy == "full":
        desk.run("privacy", [Task("privacy", str(p), part.start, part.stop) for part in parts for p in alive])
        return alive
    for part in parts[1:]:
        alive = _rung(ground, desk, alive, part)
    return alive


def _rung(ground: Ground, desk: Desk, policies: Sequence[Policy], part: range) -> list[Policy]:
    """One rung of the race: who goes on after these pictures too. On the last one nobody leaves.

    The first is run before the accuracy score, which the worse half then does not need.
    """
    name = f"privacy, {len(policies)} policies"
    desk.run(name, [Task("privacy", str(policy), part.start, part.stop) for policy in policies])
    alive = [policy for policy in policies if desk.areas(policy, part.stop) is not None]
    if part == desk.parts[-1] or not alive:
        return alive
    areas, score, top = _matrix(desk, alive, part.stop), ground.scorer.score, ground.asked.top
    if score.scale == "raw":
        return [alive[place] for place in survivors(areas, top)]
    found = combined(score, torch.from_numpy(areas), torch.tensor(ground.classes[: part.stop])).numpy()
    return [alive[place] for place in sorted({*leaders(found, top), *yardsticks(areas)})]


def _curves(ground: Ground, outcome: Outcome) -> Mapping[str, Any]:
    """No defense, a policy from the middle of what was attacked, and the best, on the pictures of the confirmation."""
    if not (ground.asked.confirm and outcome.policies):
        return {}
    named = {"none": "none", "best": outcome.policies[0].policy}
    if outcome.others:
        named["other"] = outcome.others[len(outcome.others) // 2].policy
    attack = invertgrad(steps=ground.asked.confirm_steps, tv=confirm.SMOOTHNESS)
    seed = ground.seed.at("curves")
    watch = Watch(
        model=ground.semi_trained, pictures=ground.material.attacked, attack=attack, compute=ground.compute, seed=seed
    )
    return curves(watch, {label: Policy.parse(text, ground.library) for label, text in named.items()})


def _matrix(desk: Desk, policies: Sequence[Policy], images: int) -> np.ndarray:
    return np.array([desk.areas(policy, images) for policy in policies])


def _ranked(ground: Ground, desk: Desk, policies: Sequence[Policy]) -> list[Ranked]:
    if not policies:
        return []
    areas = _matrix(desk, policies, ground.asked.images)
    return rank(policies, areas, ground.classes, ground.scorer.score, ground.asked.top)


def _attacked(ground: Ground, desk: Desk, policies: Sequence[Policy], mixed: Policy | None) -> Mapping[str, tuple]:
    """What attacks saw of each, by its text; nothing if no confirmation is asked for."""
    if not ground.asked.confirm or not policies:
        return {}
    scenario = confirm.scenario_of(ground.name, copy.deepcopy(ground.semi_trained), ground.material, ground.compute)
    also = [mixed] if mixed is not None and mixed not in policies else []
    groups = confirm.cells(
        [*policies, *also], scenario, ground.asked.confirm_steps, ground.seed.at("confirm"), ground.compute
    )
    desk.attack(groups, confirm.worker(ground.material))
    return confirm.confirmed(desk.journal.records)


def _scored(ground: Ground, desk: Desk, one: Ranked, seen: Mapping[str, tuple]) -> Scored:
    shown = ground.policies[one.policy][0]
    entries = [ground.library.entries[place] for slots in shown.alternatives for place in slots]
    return Scored(
        policy=str(shown),
        functions=tuple(map(str, entries)),
        privacy=one.privacy,
        low=one.low,
        high=one.high,
        area=one.area,
        in_top=one.in_top,
        accuracy=desk.mean("accuracy", one.policy) or 0.0,  # which is there, as it has passed
        fsim=desk.mean("fsim", one.policy),
        confirmed=seen.get(str(one.policy), ()),
    )
