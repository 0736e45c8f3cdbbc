"""Scores are a proxy: the policies that were found are attacked for real, on pictures that no score has seen.

Beside the best go policies from all over the range of scores, so that it can be measured whether a lower score means a
worse picture for the attacker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import mean

from torch import nn

from gradveil.attacks.invertgrad import invertgrad
from gradveil.audit.plan import UNDEFENDED, Cell, Grid
from gradveil.audit.runner import attack
from gradveil.audit.score import Judge
from gradveil.audit.trial import Trial
from gradveil.audit.verdict.estimate import estimate_blank
from gradveil.audit.verdict.leak import CLOSENESS, Baselines
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.core.metric import FED
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.ats import Ats
from gradveil.experiment.record import Record
from gradveil.metrics.psnr import psnr
from gradveil.metrics.retrieval import retrieval
from gradveil.search.context import SearchSplit
from gradveil.search.correlation import pearson, spearman
from gradveil.search.outcome import Confirmed, Scored, Validation
from gradveil.search.ranking import Ranked
from gradveil.transforms.policy import Policy

ATTACK = "invertgrad"
SMOOTHNESS = 1e-2  # one weight of the total variation: a policy is compared with a policy, at a fifth of the cost
ATTACKERS = ("unaware", "adaptive")
SEEN: Mapping[str, Callable[[Confirmed], float]] = {
    "private": lambda seen: seen.psnr,
    "fed": lambda seen: seen.psnr_fed,
    "identified": lambda seen: seen.identified / seen.pictures,
}


def choose(ranked: Sequence[Ranked], count: int) -> tuple[list[Ranked], list[Ranked]]:
    """The best half of `count`, and as many others, evenly over the ranks below them to the very last."""
    best = list(ranked[: (count + 1) // 2])
    rest = ranked[len(best) :]
    others = min(count - len(best), len(rest))
    return best, [rest[round((k + 1) * len(rest) / others) - 1] for k in range(others)]


def scenario_of(name: str, model: nn.Module, split: SearchSplit, compute: Compute) -> Scenario:
    """One picture per client, one step, labels known: where an attack has it easiest."""
    private = Batch(*(x[:, None].to(compute.device, compute.dtype) for x in split.attacked))
    names = tuple(f"c{client:04d}" for client in range(len(private.images)))
    placed = model.to(compute.device, compute.dtype)
    return Scenario(name=name, model=placed, private=private, names=names, trained=True)


def cells(policies: Sequence[Policy], scenario: Scenario, steps: int, seed: Seed, compute: Compute) -> list[list[Cell]]:
    """The undefended pictures, then every policy, against an attacker who does not know it and one who does."""
    defenses: dict[str, Defense] = {UNDEFENDED: Defense()}
    defenses |= {str(policy): Ats(policy=str(policy), library=policy.library.spec) for policy in policies}
    attacks = {ATTACK: invertgrad(steps=steps, tv=SMOOTHNESS)}
    return list(Grid(defenses=defenses, attacks=attacks, seed=seed, compute=compute).cells(scenario))


def worker(split: SearchSplit) -> Callable[[list[Cell]], list[Trial]]:
    """What attacks one group of cells, and judges what came out."""
    metrics = (psnr(), retrieval(gallery=split.gallery))
    blank = split.gallery.float().mean((0, 2, 3))[:, None, None]
    return partial(attack, judge=Judge(metrics, blank))


def read_confirmations(records: Sequence[Record]) -> Mapping[str, tuple[Confirmed, ...]]:
    """By policy, each attacker's result."""
    baselines = Baselines.of(records)
    found: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        if record.attack == ATTACK and not record.control:
            found.setdefault(record.defense, {}).setdefault(record.attacker, []).append(record)
    return {
        label: tuple(one for who in ATTACKERS if (one := _confirmation(who, by.get(who, []), baselines)) is not None)
        for label, by in found.items()
    }


def _confirmation(attacker: str, records: Sequence[Record], baselines: Baselines) -> Confirmed | None:
    fine = sorted((r for r in records if r.status == "ok"), key=lambda r: r.key)
    if not fine:
        return None
    decibels = [r.scores[CLOSENESS.name] for r in fine]
    interval, blank = mean_interval(decibels), estimate_blank(fine)
    return Confirmed(
        attacker=attacker,
        pictures=len(fine),
        failed=len(records) - len(fine),
        psnr=mean(decibels),
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        psnr_fed=mean(r.scores[CLOSENESS.name + FED] for r in fine),
        blank=None if blank is None else blank.mean,
        identified=sum(map(baselines.is_identified, fine)),
        leaked=sum(map(baselines.is_leaked, fine)),
    )


def validate_scores(policies: Sequence[Scored]) -> tuple[Validation, ...]:
    """Score against what each attacker saw: of the private picture, of the picture as fed, and how many it knew."""
    found = []
    for attacker in ATTACKERS if policies else ():
        pairs = [(p.privacy, c) for p in policies for c in p.confirmed if c.attacker == attacker]
        scores = [score for score, _ in pairs]
        for against, measure in SEEN.items():
            seen = [measure(c) for _, c in pairs]
            linear, ranks = pearson(scores, seen), spearman(scores, seen)
            found.append(
                Validation(attacker=attacker, against=against, policies=len(pairs), pearson=linear, spearman=ranks)
            )
    return tuple(found)
