"""A score over many trials: worst first, then how sure the average is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, Baselines
from gradveil.core.interval import Interval, mean_interval, rate_interval
from gradveil.core.metric import Facts
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of

FactsOf = Callable[[str], Facts]  # by the name of a score


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """`worst` is worst for privacy, and 95 % of the trials leak less than `most`. `low` and `high` bound the mean."""

    worst: float
    most: float
    median: float
    mean: float
    low: float | None
    high: float | None
    count: int


def estimate(facts: Facts, values: Sequence[float]) -> Estimate | None:
    """Clopper-Pearson for rates, BCa bootstrap for means; a mean of one value has no interval."""
    if not values:
        return None
    upward, numbers = facts.more_is_leakier, np.asarray(values, dtype=np.float64)
    between: Interval | None
    between = rate_interval(int((numbers > 0).sum()), len(values)) if facts.kind == "rate" else mean_interval(values)
    return Estimate(
        worst=float(numbers.max() if upward else numbers.min()),
        most=float(np.quantile(numbers, 0.95 if upward else 0.05)),
        median=float(np.median(numbers)),
        mean=float(numbers.mean()),
        low=between.low if between else None,
        high=between.high if between else None,
        count=len(values),
    )


def estimates(scores: Mapping[str, Sequence[float]], facts: FactsOf) -> dict[str, Estimate]:
    """By metric, where it was measured."""
    found = {name: estimate(facts(name), values) for name, values in scores.items()}
    return {name: value for name, value in found.items() if value is not None}


def scores_of(records: Iterable[Record]) -> dict[str, list[float]]:
    """By metric, of all that succeeded."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            for name, value in record.scores.items():
                found[name].append(value)
    return dict(sorted(found.items()))


def estimate_blank(records: Iterable[Record]) -> Estimate | None:
    """The metric that decides, of the mean public picture in the place of reconstructions; each picture counts once."""
    found = {
        (record.scenario, record.client, record.example): record.blank
        for record in records
        if record.status == "ok" and record.blank is not None
    }
    return estimate(CLOSENESS, list(found.values()))


def worst_per_picture(records: Iterable[Record], facts: FactsOf) -> dict[str, list[float]]:
    """By metric, for every picture what the attack that saw most of it in this metric saw."""
    pictures: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        pictures[record.scenario, record.client, record.example].append(record)
    found: dict[str, list[float]] = defaultdict(list)
    for of_one in pictures.values():
        for name, values in scores_of(of_one).items():
            found[name].append(reduce(facts(name).worst, values))
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """One attack, by one attacker, on one defense."""

    scenario: str
    defense: str
    attack: str
    attacker: str
    control: str
    records: Sequence[Record]
    leaked: int
    identified: int | None  # None: not measured
    facts: FactsOf = facts_of

    @property
    def attempted(self) -> int:
        return len(self.records)

    @cached_property
    def failed(self) -> int:
        return sum(record.status == "failed" for record in self.records)

    @property
    def scored(self) -> int:
        return sum(record.status == "ok" and record.has_truth for record in self.records)

    @property
    def reconstructions(self) -> int:
        """Reconstructions, scored or not."""
        return self.attempted - self.failed

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        return estimates(scores_of(self.records), self.facts)

    @cached_property
    def blank(self) -> Estimate | None:
        """What a guess that looks at no update reaches."""
        return estimate_blank(self.records)

    @cached_property
    def flags(self) -> Counter[str]:
        return Counter(flag for record in self.records for flag in record.flags)


def cells_of(records: Iterable[Record], baselines: Baselines, facts: FactsOf = facts_of) -> list[CellResult]:
    """Every cell in the order of the journal."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        groups[record.scenario, record.defense, record.attack, record.attacker, record.control].append(record)
    return [_cell(key, group, baselines, facts) for key, group in groups.items()]


def _cell(key: tuple[str, ...], records: list[Record], baselines: Baselines, facts: FactsOf) -> CellResult:
    measured = any(IDENTIFICATION.name in record.scores for record in records)
    names = ("scenario", "defense", "attack", "attacker", "control")
    return CellResult(
        **dict(zip(names, key, strict=True)),
        records=records,
        leaked=sum(map(baselines.is_leaked, records)),
        identified=sum(map(baselines.is_identified, records)) if measured else None,
        facts=facts,
    )
