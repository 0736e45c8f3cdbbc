"""Search for transformation policies (ATS, algorithm 1), journaled and resumed like an audit.

    sample policies -> FSIM filter -> accuracy score on an untrained model, filter -> privacy score on a semi-trained
    model -> the best, and the hybrid of the best without a common transformation -> attack them for real

Differs from algorithm 1: every candidate that passes is scored, also the first n; policies that do the same are scored
once; all policies see the same random numbers.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario
from gradveil.core.time_limit import OutOfTime, TimeLimit
from gradveil.data.draw import describe_rows
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import JOURNAL, REPORT, RunFolder
from gradveil.experiment.journal import read
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import provenance
from gradveil.experiment.runner import Runner
from gradveil.experiment.seal import seal
from gradveil.search import confirm
from gradveil.search.context import SearchContext, prepare_context
from gradveil.search.curves import Watch, curves
from gradveil.search.outcome import Scored, SearchOutcome
from gradveil.search.page import write_search_page
from gradveil.search.privacy import combine
from gradveil.search.ranking import Ranked, blocks, hybrid, leaders, rank, survivors, whole, yardsticks
from gradveil.search.runner import SearchRunner
from gradveil.search.scoring import Task
from gradveil.search.settings import SearchSettings, check_settings
from gradveil.search.threshold import least_accuracy
from gradveil.transforms.policy import Policy

ON_A_CPU = 32  # pictures at once: fixed, since memory that happens to be free must not move a number


def search(
    settings: SearchSettings,
    folder: str | Path,
    *,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    seconds: float | None = None,
) -> SearchOutcome:
    """Search for transformation policies; what is already in `folder` is not computed again.

    settings: model, data, library, the scores and the confirmation; see `SearchSettings`.
    folder: where journal, pictures and report.html go; the folder of the same search is gone on with.
    compute: device and precision; `workers` processes or a Ray cluster score the policies.
    progress: what shows how far the search is; nothing by default.
    seconds: after this time no new score or attack is started; what is there is kept, and `Interrupted` raised, since
        policies are ranked when all have their scores. Call again to resume. No limit by default.
    """
    return run(Search(settings, seconds), folder, compute, progress)


class SearchFolder(RunFolder):
    """Its journal also holds scores, which are no trials."""

    results = "results"


class Search(Experiment[SearchOutcome]):
    """ATS's algorithm 1 on the way that all experiments go."""

    folder_type = SearchFolder
    context: SearchContext

    def __init__(self, settings: SearchSettings, seconds: float | None = None) -> None:
        self.settings = settings
        self.until = inf if seconds is None else time.monotonic() + TimeLimit(seconds).seconds

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        config, library = check_settings(self.settings)
        Pool.of(compute).check(compute.device)
        progress.begin(_stages(self.settings))
        chunk = compute.chunk or (ON_A_CPU if compute.device == "cpu" else None)
        alone = replace(compute, workers=0, ray="", chunk=chunk)
        self.context = prepare_context(self.settings, config, library, alone, progress)

    def to_tables(self) -> Mapping[str, Any]:
        return self.settings.to_tables()

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        """Where the scores come from. The pictures of the accuracy score follow from the data and the seed."""
        context, split = self.context, self.context.split
        scored = Scenario(name=context.name, model=context.semi_trained, private=split.scored, names=())
        attacked = replace(scored, name="attacked", private=split.attacked)
        origin = provenance(scored, split.gallery, config, self.settings.seed, context.compute, (attacked,))
        return origin | {"rows": describe_rows(split.victims)}

    def play(self, runner: Runner) -> SearchOutcome:
        parts = _parts(self.settings)
        scores = SearchRunner(runner=runner, scorer=self.context.scorer, parts=parts, until=self.until)
        try:
            outcome = _search(self.context, scores)
        except OutOfTime:
            raise KeyboardInterrupt from None  # a part of the policies makes no ranking
        return replace(
            outcome,
            curves=_curves(self.context, outcome),
            settings=self.settings.to_tables()["search"],
            provenance=runner.brief_origin,
        )

    def write(self, outcome: SearchOutcome, folder: Path) -> None:
        write_search_page(folder / REPORT, outcome, read(folder / JOURNAL))
        seal(folder)


def _stages(settings: SearchSettings) -> int:
    privacy = len(_parts(settings)) if settings.strategy == "race" else 1
    return 3 + privacy + (settings.fsim is not None) + (settings.confirm > 0)


def _parts(settings: SearchSettings) -> tuple[range, ...]:
    return blocks(settings.images) if settings.strategy == "race" else whole(settings.images)


def _search(context: SearchContext, scores: SearchRunner) -> SearchOutcome:
    """Algorithm 1, then the hybrid and the confirmation."""
    settings, all_policies = context.settings, list(context.policies)
    like = all_policies
    if settings.fsim is not None:
        scores.score("fsim", [Task("fsim", str(policy)) for policy in all_policies])
        like = scores.above("fsim", all_policies, settings.fsim)
    ahead = _rung(context, scores, like, scores.parts[0]) if settings.strategy == "race" else like
    bar = least_accuracy(scores, ahead, settings.threshold)
    fine = scores.above("accuracy", ahead, bar.value)
    pool = [policy for policy in _privacy(context, scores, fine) if scores.areas(policy, settings.images) is not None]
    ranked = _rank(context, scores, pool)
    best = ranked[: settings.top]
    mixed = hybrid([context.policies[one.policy][0] for one in ranked], settings.hybrid) if ranked else None
    chosen = confirm.choose(ranked, settings.confirm) if settings.confirm else ([], [])
    seen = _confirm(context, scores, [one.policy for some in chosen for one in some], mixed)
    shown = [*best, *(one for one in chosen[0] if one not in best)]
    scores.score("fsim", [Task("fsim", str(one.policy)) for one in (*shown, *chosen[1])])
    rows = {one.policy: _row(context, scores, one, seen) for one in (*shown, *chosen[1])}
    return SearchOutcome(
        library=context.library,
        hybrid="" if mixed is None else str(mixed),
        policies=tuple(rows[one.policy] for one in best),
        others=tuple(row for policy, row in rows.items() if policy not in {one.policy for one in best}),
        hybrid_confirmed=() if mixed is None else seen.get(str(mixed), ()),
        undefended=seen.get(confirm.UNDEFENDED, ()),
        validation=confirm.validate_scores([row for row in rows.values() if row.confirmed]),
        candidates=sum(map(len, context.policies.values())),
        distinct=len(all_policies),
        distorted=len(all_policies) - len(like),
        passed=len(fine),
        threshold=bar.value,
        untransformed=bar.untransformed,
        rule=bar.rule,
        failed=scores.failed,
        scored=len(pool),
    )


def _privacy(context: SearchContext, scores: SearchRunner, policies: Sequence[Policy]) -> list[Policy]:
    """Score them on all pictures, or go on with the race on more and more of them; who is left at the end."""
    alive, parts = list(policies), scores.parts
    if context.settings.strategy == "full":
        scores.score("privacy", [Task("privacy", str(p), part.start, part.stop) for part in parts for p in alive])
        return alive
    for part in parts[1:]:
        alive = _rung(context, scores, alive, part)
    return alive


def _rung(context: SearchContext, scores: SearchRunner, policies: Sequence[Policy], part: range) -> list[Policy]:
    """One rung of the race: who goes on after these pictures too. On the last one nobody leaves.

    The first is run before the accuracy score, which the worse half then does not need.
    """
    name = f"privacy, {len(policies)} policies"
    scores.score(name, [Task("privacy", str(policy), part.start, part.stop) for policy in policies])
    alive = [policy for policy in policies if scores.areas(policy, part.stop) is not None]
    if part == scores.parts[-1] or not alive:
        return alive
    areas, score, top = _matrix(scores, alive, part.stop), context.scorer.score, context.settings.top
    if score.scale == "raw":
        return [alive[place] for place in survivors(areas, top)]
    found = combine(score, torch.from_numpy(areas), torch.tensor(context.classes[: part.stop])).numpy()
    return [alive[place] for place in sorted({*leaders(found, top), *yardsticks(areas)})]


def _curves(context: SearchContext, outcome: SearchOutcome) -> Mapping[str, Any]:
    """No defense, a policy from the middle of what was attacked, and the best, on the pictures of the confirmation."""
    if not (context.settings.confirm and outcome.policies):
        return {}
    named = {"none": "none", "best": outcome.policies[0].policy}
    if outcome.others:
        named["other"] = outcome.others[len(outcome.others) // 2].policy
    attack = invertgrad(steps=context.settings.confirm_steps, tv=confirm.SMOOTHNESS)
    seed = context.seed.at("curves")
    watch = Watch(
        model=context.semi_trained, pictures=context.split.attacked, attack=attack, compute=context.compute, seed=seed
    )
    return curves(watch, {label: Policy.parse(text, context.library) for label, text in named.items()})


def _matrix(scores: SearchRunner, policies: Sequence[Policy], images: int) -> np.ndarray:
    return np.array([scores.areas(policy, images) for policy in policies])


def _rank(context: SearchContext, scores: SearchRunner, policies: Sequence[Policy]) -> list[Ranked]:
    if not policies:
        return []
    areas = _matrix(scores, policies, context.settings.images)
    return rank(policies, areas, context.classes, context.scorer.score, context.settings.top)


def _confirm(
    context: SearchContext, scores: SearchRunner, policies: Sequence[Policy], mixed: Policy | None
) -> Mapping[str, tuple]:
    """What attacks saw of each, by its text; nothing if no confirmation is asked for."""
    if not context.settings.confirm or not policies:
        return {}
    scenario = confirm.scenario_of(context.name, copy.deepcopy(context.semi_trained), context.split, context.compute)
    also = [mixed] if mixed is not None and mixed not in policies else []
    groups = confirm.cells(
        [*policies, *also], scenario, context.settings.confirm_steps, context.seed.at("confirm"), context.compute
    )
    scores.attack(groups, confirm.worker(context.split))
    return confirm.read_confirmations(scores.runner.journal.records)


def _row(context: SearchContext, scores: SearchRunner, one: Ranked, seen: Mapping[str, tuple]) -> Scored:
    shown = context.policies[one.policy][0]
    entries = [context.library.entries[place] for slots in shown.alternatives for place in slots]
    return Scored(
        policy=str(shown),
        functions=tuple(map(str, entries)),
        privacy=one.privacy,
        low=one.low,
        high=one.high,
        area=one.area,
        in_top=one.in_top,
        accuracy=scores.mean("accuracy", one.policy) or 0.0,  # which is there, as it has passed
        fsim=scores.mean("fsim", one.policy),
        confirmed=seen.get(str(one.policy), ()),
    )
