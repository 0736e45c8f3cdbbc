"""What the audit of one defense found, read back from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradveil.audit.results import Run, read_run
from gradveil.audit.verdict import Verdict, judge
from gradveil.audit.verdict.checks import MOST_FAILED
from gradveil.audit.verdict.estimate import FactsOf
from gradveil.audit.verdict.tally import Tally
from gradveil.core.metric import Facts
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of
from gradveil.tradeoff.estimates import Between, of_pictures, of_share
from gradveil.tradeoff.leakage import by_victim
from gradveil.tradeoff.settings import LEAKED

COUNTED = {LEAKED: "share of pictures that leaked", "identified": "share of pictures that were identified"}


def measure_facts(measure: str, facts: FactsOf = facts_of) -> Facts:
    """How to read a measure: a metric, or a share that the verdict counts."""
    return Facts(name=measure, label=COUNTED[measure], kind="rate") if measure in COUNTED else facts(measure)


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """For every picture what the attack, attacker and stage that saw most of it saw."""

    values: Mapping[str, Mapping[str, float]] = field(repr=False)  # measure -> picture -> value
    measures: Mapping[str, Between]
    pictures: int
    leaked: int
    identified: int
    attempted: int  # trials
    failed: int
    verdict: str
    reasons: tuple[str, ...]
    under: str
    positive: str  # what the positive control says
    adaptive: bool  # whether an attacker who knows the defense was tried, or there is no defense to know
    broken: str = ""  # why these numbers say nothing
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain = {key: value for key, value in vars(self).items() if key not in ("values", "measures")}
        return {**plain, "measures": {name: value.to_json() for name, value in self.measures.items()}}


def read_leakage(folder: Path) -> Leakage:
    run = read_run(folder)
    verdict = judge(run)
    tallies = [finding.tally for finding in verdict.findings]
    records = [record for tally in tallies for record in tally.records]
    values = _values(run, records, verdict)
    leaked, identified = (sum(values[name].values()) for name in (LEAKED, "identified"))
    return Leakage(
        values=values,
        measures=_measures(values),
        pictures=len(values[LEAKED]),
        leaked=int(leaked),
        identified=int(identified),
        attempted=len(records),
        failed=sum(tally.failed for tally in tallies),
        verdict=verdict.word,
        reasons=tuple(reason for f in verdict.findings if f.verdict == verdict.word for reason in f.reasons),
        under=verdict.under,
        positive=verdict.positive.message if verdict.positive else "none in this run",
        adaptive=all(tally.undefended or tally.has_adaptive for tally in tallies),
        broken=_broken(run, tallies, verdict),
        flags=verdict.flags,
    )


def _values(run: Run, records: Sequence[Record], verdict: Verdict) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {LEAKED: {}, "identified": {}}
    for record in (record for record in records if record.status == "ok"):
        picture = f"{by_victim(record.scenario)}/{record.client}/{record.example}"
        seen = {
            **record.scores,
            LEAKED: float(verdict.baselines.is_leaked(record)),
            "identified": float(verdict.baselines.is_identified(record)),
        }
        for name, value in seen.items():
            of_measure = found.setdefault(name, {})
            of_measure[picture] = measure_facts(name, run.facts).worst(of_measure.get(picture, value), value)
    return found


def _measures(values: Mapping[str, Mapping[str, float]]) -> dict[str, Between]:
    rates = {name: of_share(int(sum(v.values())), len(v)) for name, v in values.items() if name in COUNTED and v}
    return rates | {name: of_pictures(list(v.values())) for name, v in sorted(values.items()) if name not in COUNTED}


def _broken(run: Run, tallies: Sequence[Tally], verdict: Verdict) -> str:
    """A failed attack is no protection: too many of them, and the point is a failed one."""
    failed, attempted = sum(t.failed for t in tallies), sum(t.attempted for t in tallies)
    if failed > MOST_FAILED * attempted:
        reason = next((r.reason for r in run.records if r.status == "failed"), "")
        return f"{failed} of {attempted} attacks failed: {reason}"
    if unscored := sum(t.pictures - t.scored for t in tallies):
        return f"{unscored} pictures have no score"
    return f"{verdict.missing} trials are missing" if verdict.missing else ""
