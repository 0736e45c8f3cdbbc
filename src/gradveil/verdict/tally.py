"""What was counted for one defense in one scenario, before anyone judges it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gradveil.interval import Interval, at_least, at_most, rate_interval
from gradveil.record import Record
from gradveil.results import Run
from gradveil.verdict.checks import by_picture
from gradveil.verdict.estimate import Estimate, estimate, worst_per_picture
from gradveil.verdict.leak import Baselines


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

    @property
    def attempted(self) -> int:
        """Trials."""
        return len(self.records)

    @cached_property
    def failed(self) -> int:
        return sum(record.status == "failed" for record in self.records)

    @property
    def counted(self) -> int:
        """What bounds are about: a picture that was identified counts, whether or not it is close."""
        return max(self.leaked, self.identified or 0)

    @property
    def interval(self) -> Interval:
        return rate_interval(self.counted, self.scored)

    @property
    def at_most(self) -> float:
        """No larger share of such pictures leaks to these attacks, with 95 % confidence."""
        return at_most(self.counted, self.scored)

    @property
    def beats_chance(self) -> bool:
        """Whether more pictures are identified than guessing explains, with 95 % confidence."""
        return self.chance is not None and at_least(self.identified or 0, self.scored) > self.chance

    @cached_property
    def worst(self) -> dict[str, Estimate]:
        """By metric; for each picture the attack that saw most of it."""
        found = {name: estimate(name, values) for name, values in worst_per_picture(self.records).items()}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def has_adaptive(self) -> bool:
        return any(record.attacker == "adaptive" for record in self.records)


def tallies(run: Run, baselines: Baselines) -> list[Tally]:
    """The audited scenario first, in each the undefended model, then the defense that leaks most."""
    return sorted(_tallies(run, baselines), key=_worst_first)


def _worst_first(tally: Tally) -> tuple[bool, str, bool, float, float, str]:
    share = tally.counted / max(tally.scored, 1)
    psnr = tally.worst["psnr"].worst if "psnr" in tally.worst else float("-inf")
    return tally.role == "variation", tally.scenario, not tally.undefended, -share, -psnr, tally.defense


def _tallies(run: Run, baselines: Baselines) -> Iterator[Tally]:
    """One for each defense in each scenario that was audited: a control is not judged."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in run.records:
        if not record.control and run.scenarios.get(record.scenario, {}).get("role") != "control":
            groups.setdefault((record.scenario, record.defense), []).append(record)
    for (scenario, defense), records in groups.items():
        yield _tally(run, scenario, defense, records, baselines)


def _tally(run: Run, scenario: str, defense: str, records: list[Record], baselines: Baselines) -> Tally:
    about, pictures = run.scenarios.get(scenario, {}), by_picture(records).values()
    measured = any("retrieval" in r.scores for r in records)
    tries = len({(r.attack, r.attacker) for r in records})
    return Tally(
        scenario=scenario,
        role=str(about.get("role", "audited")),
        regime=str(about.get("regime", "not stated")),
        defense=defense,
        undefended=run.undefended(defense),
        records=records,
        pictures=len(pictures),
        scored=sum(any(r.status == "ok" for r in of_one) for of_one in pictures),
        leaked=sum(any(map(baselines.is_leaked, of_one)) for of_one in pictures),
        identified=sum(any(map(baselines.is_identified, of_one)) for of_one in pictures) if measured else None,
        chance=1 - (1 - 1 / run.gallery) ** tries if measured and run.gallery else None,
    )
