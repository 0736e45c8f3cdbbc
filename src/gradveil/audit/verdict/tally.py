"""What was counted for one defense in one scenario, before anyone judges it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gradveil.audit import canaries
from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import by_picture
from gradveil.audit.verdict.completeness import count_missing
from gradveil.audit.verdict.estimate import Estimate, FactsOf, estimate_blank, estimates, worst_per_picture
from gradveil.audit.verdict.gallery_rank import GalleryRank, rank_in_gallery
from gradveil.audit.verdict.identify import DECIDED_ALREADY, Search, searches, unreliable_searches
from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION, Baselines, Guise, count_guises, guises_of
from gradveil.audit.verdict.reach import ATTACKERS, is_timed, planned_pictures, planned_tries
from gradveil.core.interval import Interval, at_least, at_most_of, share_interval
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
    leaked_as: Mapping[Guise, int] = field(default_factory=dict, repr=False)  # their number in each guise
    identified: int | None  # leaked pictures among them; None: not measured
    otherwise: int = 0  # found by another search alone, if any of those that beat chance; the three never overlap
    shares: tuple[float, ...] = ()  # of each update, how many of its scored pictures leaked or were identified
    chance: float | None  # that a picture is identified by one of the attacks in some guise though none saw anything
    first_rows: bool = False  # its pictures are the first of the data, and not drawn
    as_sent: bool = False  # what real clients sent, of whom none told a defense
    rank: GalleryRank | None = None  # at which place of the gallery the original stands
    searches: tuple[Search, ...] = ()  # every way of looking for the original that was measured
    bytes: int | None = None  # of one client's update
    planned: int = 0  # pictures that a run with limited time is about, of which it may have seen a part
    facts: FactsOf = field(default=facts_of, repr=False)

    @property
    def is_aside(self) -> bool:
        """Whether it is about another scenario than the one that was asked about."""
        return self.role != "audited"

    @property
    def is_sample(self) -> bool:
        """Whether its pictures are those that were asked about, and not chosen for being unusual."""
        return self.role != canaries.ROLE

    @property
    def is_random(self) -> bool:
        """Whether its pictures were drawn at random; of chosen ones no bound says anything about others."""
        return self.is_sample and not self.first_rows

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
        return self.leaked if self.identified is None else self.identified

    @property
    def exposed(self) -> int:
        """Pictures that leaked, were identified, or were found by another search that beats chance."""
        return self.hits + self.otherwise

    @property
    def updates(self) -> int:
        """Pictures of one update are not independent: intervals and bounds count updates."""
        return len(self.shares)

    @property
    def interval(self) -> Interval:
        return share_interval(self.shares)

    @property
    def bound(self) -> float:
        """No larger share of such pictures is identified by these attacks, with 95 % confidence, if they work."""
        return at_most_of(self.shares) if self.shares else 1.0

    @property
    def beats_chance(self) -> bool:
        """Whether more pictures are identified than guessing explains, with 95 % confidence."""
        return self.chance is not None and at_least(self.identified or 0, max(self.scored, self.planned)) > self.chance

    @property
    def found_otherwise(self) -> tuple[Search, ...]:
        """Other searches than top-1 on pixels that find more than guessing does."""
        return tuple(
            search
            for search in self.searches
            if search.metric not in DECIDED_ALREADY and search.beats_chance and search.believed
        )

    @cached_property
    def worst(self) -> dict[str, Estimate]:
        """By metric; for each picture the attack that saw most of it."""
        return estimates(worst_per_picture(self.records, self.facts), self.facts)

    @cached_property
    def blank(self) -> Estimate | None:
        """What a guess that looks at no update reaches."""
        return estimate_blank(self.records)

    @property
    def has_adaptive(self) -> bool:
        return any(record.attacker == "adaptive" for record in self.records)


def tally_run(run: Run, baselines: Baselines) -> list[Tally]:
    """The audited scenario first, in each the undefended model, then the defense that leaks most."""
    return sorted(_tallies(run, baselines), key=_worst_first)


def _worst_first(tally: Tally) -> tuple[int, str, bool, float, float, float, str]:
    """By re-identification, then by squared error."""
    share, found = tally.hits / max(tally.scored, 1), sum(search.share for search in tally.searches)
    near = tally.worst[CLOSENESS.name].worst if CLOSENESS.name in tally.worst else float("-inf")
    return (
        2 * (not tally.is_sample) or tally.is_aside,
        tally.scenario,
        not tally.undefended,
        -share,
        -found,
        -near,
        tally.defense,
    )


def _tallies(run: Run, baselines: Baselines) -> Iterator[Tally]:
    """One for each defense in each scenario that was audited: a control is not judged."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in run.records:
        if not record.control and run.scenarios.get(record.scenario, {}).get("role") != "control":
            groups.setdefault((record.scenario, record.defense), []).append(record)
    if is_timed(run):  # a defense that there was no time for is not left out
        for scenario, defense, _, kind, _ in run.plan.get("cells", ()):
            if kind in ATTACKERS and run.scenarios.get(scenario, {}).get("role") != "control":
                groups.setdefault((scenario, defense), [])
    doubtful, is_open = unreliable_searches(run), is_timed(run) and bool(count_missing(run, baselines))
    for (scenario, defense), records in groups.items():
        yield _tally(run, scenario, defense, records, baselines, doubtful, is_open)


def _tally(
    run: Run,
    scenario: str,
    defense: str,
    records: list[Record],
    baselines: Baselines,
    doubtful: frozenset[str],
    is_open: bool,
) -> Tally:
    about, by_place = run.scenarios.get(scenario, {}), by_picture(records)
    pictures = by_place.values()
    measured = any(IDENTIFICATION.name in r.scores for r in records)
    tries, planned = len({(r.attack, r.attacker) for r in records}), 0
    if is_open:  # who looks again and again may not forget how often
        tries = max(tries, planned_tries(run, scenario, defense))
        planned = planned_pictures(run, scenario, defense)
    leaked = _places(by_place, baselines.is_leaked)
    identified = _places(by_place, baselines.is_identified) | leaked  # also where this one's search was not measured
    found = searches(by_place, baselines, run.gallery, tries, doubtful, planned)
    return Tally(
        scenario=scenario,
        role=str(about.get("role", "audited")),
        regime=str(about.get("regime", "not stated")),
        defense=defense,
        undefended=run.undefended(defense),
        first_rows=run.scenario.get("draw") == "first",
        as_sent=run.undefended(defense) and bool(run.captured),
        records=records,
        pictures=len(pictures),
        scored=sum(any(map(is_scored, of_one)) for of_one in pictures),
        leaked=len(leaked),
        leaked_as=count_guises(pictures, baselines),
        identified=len(identified) if measured else None,
        otherwise=len(_found_otherwise(by_place, baselines, found) - identified - leaked),
        shares=_shares(by_place, identified | leaked),
        chance=1 - (1 - 1 / run.gallery) ** (tries * len(guises_of(records))) if measured and run.gallery else None,
        rank=rank_in_gallery(by_place, run.gallery, tries),
        searches=found,
        bytes=run.update_bytes(scenario, defense),
        planned=planned,
        facts=run.facts,
    )


Place = tuple[str, str, int]  # of a picture: scenario, client, example
ByPicture = Mapping[Place, Sequence[Record]]


def _places(pictures: ByPicture, is_hit: Callable[[Record], bool]) -> frozenset[Place]:
    return frozenset(place for place, of_one in pictures.items() if any(map(is_hit, filter(is_scored, of_one))))


def is_scored(record: Record) -> bool:
    """Whether it can be a hit: of a captured round without originals no score is about the client's picture."""
    return record.status == "ok" and record.has_truth


def _found_otherwise(pictures: ByPicture, baselines: Baselines, found: Sequence[Search]) -> frozenset[Place]:
    asked = [search for search in found if search.metric not in DECIDED_ALREADY]
    names = [search.metric for search in asked if search.beats_chance and search.believed]
    return _places(pictures, lambda record: any(baselines.is_found(record, name) for name in names))


def _shares(pictures: ByPicture, hits: frozenset[Place]) -> tuple[float, ...]:
    """Of each update, the share of its scored pictures that are hits; of one without any score nothing is known."""
    updates: dict[str, list[bool]] = {}
    for place, of_one in pictures.items():
        if any(map(is_scored, of_one)):
            updates.setdefault(place[1], []).append(place in hits)
    return tuple(sum(of_update) / len(of_update) for of_update in updates.values())
