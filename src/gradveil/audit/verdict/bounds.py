"""What is known of a defense beside its attacks: the line-up, the certificate, and what follows from both.

Two questions. Can the pictures be reconstructed? *Bounded* if nobody identifies more than the limit. Does the update
name its picture to somebody who has it? *Linkable*, or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, fsum
from typing import Literal

from gradveil.audit.results import Run
from gradveil.audit.verdict.certified import CertifiedShare, read_certificate
from gradveil.audit.verdict.evidence import Evidence
from gradveil.audit.verdict.leak import guises_of
from gradveil.audit.verdict.lineup import Key, LineUpResult, count_line_up
from gradveil.audit.verdict.lineup_controls import Doubts, check_line_up, is_planned
from gradveil.audit.verdict.tally import Tally
from gradveil.core.interval import NEARLY, at_least_of
from gradveil.dp.audited_round import DELTA
from gradveil.dp.empirical import Neighbors, empirical_epsilon
from gradveil.experiment.record import Record
from gradveil.experiment.reseal import SEALED_AGAIN

Linkable = Literal["linkable", "not linkable", "not evaluated"]
By = Literal["certificate", "line-up"]
LIMIT = 0.05  # of the pictures; `limit_named`
RARE = 0.01  # how often a share may be taken for more than guessing


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Of one defense in one scenario.

    exceeded: whether attacks surely identify more than the line-up allows. drawn: false of pictures that were chosen,
    which say nothing of others. may_plant: the server may send another model than the line-up was held with.
    whole: no trial is missing, the seal is the first one. reason: why there is no line-up, though there should be.
    """

    lineup: LineUpResult | None = None
    certificate: CertifiedShare | None = None
    limit: float = LIMIT
    planned: bool = False  # whether a line-up was to be held
    doubts: Doubts = field(default_factory=Doubts)
    exceeded: bool = False
    drawn: bool = True
    may_plant: bool = False
    whole: bool = True
    reason: str = ""

    @property
    def bounded_by(self) -> By | None:
        """What shows that nobody identifies more than the limit; the certificate first, since it assumes least."""
        if not self.whole or self.doubts.foreign:
            return None
        if self.certificate is not None and self.certificate.at_most <= self.limit:
            return "certificate"
        return "line-up" if self._is_low else None

    @property
    def at_most(self) -> float | None:
        """Nobody identifies a larger share; None where nothing shows that."""
        if self.bounded_by is None:
            return None
        named = self.lineup.own.at_most if self.lineup is not None and self._is_low else 1.0
        return min(named, 1.0 if self.certificate is None else self.certificate.at_most)

    @property
    def _is_low(self) -> bool:
        """Whether the line-up surely names no more than the limit, and can be believed."""
        one = self.lineup
        if one is None or self.doubts or self.exceeded or one.beside or one.kind == "estimated":
            return False
        return self.drawn and not self.may_plant and one.own.at_most <= self.limit

    @property
    def is_high(self) -> bool:
        """Whether the line-up surely names more than the limit."""
        return self.lineup is not None and not self.doubts.blind and self.lineup.own.at_least > self.limit

    @property
    def linkable(self) -> Linkable:
        """Naming pictures shows that they can be named; that nobody names them needs every control."""
        if self.bounded_by is not None:
            return "not linkable"
        if self.lineup is None or self.doubts.blind:
            return "not evaluated"
        own = self.lineup.own
        surely_more = at_least_of(own.shares(), 1 - RARE) > own.chance
        return "linkable" if surely_more and own.at_most > self.limit else "not evaluated"

    def epsilon(self, neighbors: Neighbors) -> float | None:
        """The least that an account of this defense can say, between such neighbors; None without a line-up."""
        if self.lineup is None or self.doubts.blind:
            return None
        shares = self.lineup.own.shares()
        delta = DELTA if neighbors == "add-remove" else 0.0
        return empirical_epsilon(
            floor(fsum(shares) + NEARLY), len(shares), self.lineup.candidates, delta=delta, neighbors=neighbors
        )


def weigh_bounds(
    run: Run,
    tally: Tally,
    evidence: Sequence[Evidence],
    line_ups: Mapping[Key, Sequence[Record]],
    missing: int,
) -> Bounds:
    """All that is known of one defense beside its attacks."""
    key = tally.scenario, tally.defense
    result = count_line_up(line_ups.get(key, ()), count_tries(tally), _widest(tally))
    certificate = read_certificate(run, *key)
    planned = is_planned(run, key)
    allowed = certificate.at(result.own.chance) if certificate and result else None  # among as many candidates
    doubts = check_line_up(run, key, result, line_ups, allowed)
    agrees = planned or not any(one.oracle is not None and one.oracle.passed is False for one in evidence)
    return Bounds(
        lineup=result,
        certificate=certificate,
        limit=read_limit(run),
        planned=planned or key in line_ups,
        doubts=doubts,
        exceeded=result is not None and is_exceeded(tally, result),
        drawn=tally.is_random,
        may_plant=run.scenarios.get(tally.scenario, {}).get("attacker", run.scenario.get("attacker")) == "malicious",
        whole=bool(run.plan) and not missing and not run.provenance.get(SEALED_AGAIN) and agrees,
        reason=_why_none(line_ups.get(key, ())) if result is None else "",
    )


def read_limit(run: Run) -> float:
    """The largest share that may be named, as configured."""
    limit = run.config.get("limit_named", LIMIT)
    sound = isinstance(limit, int | float) and not isinstance(limit, bool) and 0 < limit < 1
    return float(limit) if sound else LIMIT


def count_tries(tally: Tally) -> int:
    """How many pictures all attacks together name at most, for each private one: each attacker in each guise one."""
    tries = len({(record.attack, record.attacker) for record in tally.records})
    return max(1, tries * len(guises_of(tally.records)))


def _widest(tally: Tally) -> int:
    return max((search.top for search in tally.searches), default=1)


def is_exceeded(tally: Tally, result: LineUpResult) -> bool:
    """Whether attacks surely identify more than their number of best guesses would."""
    if tally.identified and tally.interval.low > result.ceiling(result.top):
        return True
    wide = [search for search in tally.searches if search.top > 1 and search.believed]
    return any(one.interval.low > result.ceiling(result.top * one.top) for one in wide)


def _why_none(records: Sequence[Record]) -> str:
    reasons = list(dict.fromkeys(record.reason for record in records if record.status == "failed" and record.reason))
    return reasons[0] if reasons else ""
