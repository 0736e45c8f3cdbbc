"""What was counted for one defense in one scenario, before anyone judges it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import by_picture
from gradveil.audit.verdict.estimate import Estimate, FactsOf, estimates, worst_per_picture
from gradveil.audit.verdict.identify import FIRST, Search, searches, unreliable_searches
from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, Baselines
from gradveil.core.interval import Interval, at_least, at_most, rate_interval
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Pictures are counted once, whichever attack saw most of them."""

    scenario: str
    role: str
    regime: str
    defense: str
    undefended: bool
    records: Sequence[Record] = field(repr=False)
    pictures: int
    scored: int
    leaked: int
    identified: int | None  # None: not measured
    chance: float | None  # that a picture is identified by at least one of the attacks though none saw anything
    as_sent: bool = False  # what real clients sent, of whom none told a defense
    searches: tuple[Search, ...] = ()  # every way of looking for the original that was measured
    bytes: int | None = None  # of one client's update
    facts: FactsOf = field(default=facts_of, repr=False)

    @property
    def attempted(self) -> int:
        """Trials."""
        return len(self.records)

    @property
    def has_truth(self) -> bool:
        return any(record.has_truth for record in self.records)

    @cached_property
    def failed(self) -> int:
        return sum(record.status == "failed" for record in self.records)

    @property
    def hits(self) -> int:
        """What bounds are about: a picture that was identified counts, whether or not it is close."""
        return max(self.leaked, self.identified or 0)

    @property
    def interval(self) -> Interval:
        return rate_interval(self.hits, self.scored)

    @property
    def at_most(self) -> float:
        """No larger share of such pictures leaks to these attacks, with 95 % confidence."""
        return at_most(self.hits, self.scored)

    @property
    def beats_chance(self) -> bool:
        """Whether more pictures are identified than guessing explains, with 95 % confidence."""
        return self.chance is not None and at_least(self.identified or 0, self.scored) > self.chance

    @property
    def found_otherwise(self) -> tuple[Search, ...]:
        """Other searches than top-1 on pixels that find more than guessing does."""
        return tuple(
            search for search in self.searches if search.metric != FIRST and search.beats_chance and search.believed
        )

    @cached_property
    def worst(self) -> dict[str, Estimate]:
        """By metric; for each picture the attack that saw most of it."""
        return estimates(worst_per_picture(self.records, self.facts), self.facts)

    @property
    def has_adaptive(self) -> bool:
        return any(record.attacker == "adaptive" for record in self.records)


def tally_run(run: Run, baselines: Baselines) -> list[Tally]:
    """The audited scenario first, in each the undefended model, then the defense that leaks most."""
    return sorted(_tallies(run, baselines), key=_worst_first)


def _worst_first(tally: Tally) -> tuple[bool, str, bool, float, float, float, str]:
    """By re-identification, then by squared error."""
    share, found = tally.hits / max(tally.scored, 1), sum(search.share for search in tally.searches)
    near = tally.worst[CLOSENESS.name].worst if CLOSENESS.name in tally.worst else float("-inf")
    return tally.role == "variation", tally.scenario, not tally.undefended, -share, -found, -near, tally.defense


def _tallies(run: Run, baselines: Baselines) -> Iterator[Tally]:
    """One for each defense in each scenario that was audited: a control is not judged."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in run.records:
        if not record.control and run.scenarios.get(record.scenario, {}).get("role") != "control":
            groups.setdefault((record.scenario, record.defense), []).append(record)
    doubtful = unreliable_searches(run)
    for (scenario, defense), records in groups.items():
        yield _tally(run, scenario, defense, records, baselines, doubtful)


def _tally(
    run: Run, scenario: str, defense: str, records: list[Record], baselines: Baselines, doubtful: frozenset[str]
) -> Tally:
    about, by_place = run.scenarios.get(scenario, {}), by_picture(records)
    pictures = by_place.values()
    measured = any(IDENTIFICATION.name in r.scores for r in records)
    tries = len({(r.attack, r.attacker) for r in records})
    return Tally(
        scenario=scenario,
        role=str(about.get("role", "audited")),
        regime=str(about.get("regime", "not stated")),
        defense=defense,
        undefended=run.undefended(defense),
        as_sent=run.undefended(defense) and bool(run.captured),
        records=records,
        pictures=len(pictures),
        scored=sum(any(r.status == "ok" and r.has_truth for r in of_one) for of_one in pictures),
        leaked=sum(any(map(baselines.is_leaked, of_one)) for of_one in pictures),
        identified=sum(any(map(baselines.is_identified, of_one)) for of_one in pictures) if measured else None,
        chance=1 - (1 - 1 / run.gallery) ** tries if measured and run.gallery else None,
        searches=searches(by_place, baselines, run.gallery, tries, doubtful),
        bytes=run.update_bytes(scenario, defense),
        facts=run.facts,
    )
