"""What was measured: by cell (one attack on one defense), and by defense in the worst case over its attacks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gradveil.record import Record
from gradveil.report.run import Run


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of one score over the scored trials."""

    high: float
    low: float
    median: float
    mean: float


def spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    if not found:
        return None
    return Spread(high=max(found), low=min(found), median=median(found), mean=fmean(found))


def leakage(record: Record) -> float:
    """Sorts trials by what they show of the picture, with the first metric of the run that there is."""
    scores = record.scores
    if "psnr" in scores:
        return scores["psnr"]
    return scores["ssim"] if "ssim" in scores else -scores.get("lpips", float("inf"))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The trials of one attack, by one attacker, on one defense."""

    scenario: str
    defense: str
    attack: str
    attacker: str
    undefended: bool
    scored: Sequence[Record]  # most leaked first
    failed: Sequence[Record]

    @property
    def attempted(self) -> int:
        return len(self.scored) + len(self.failed)

    def spread(self, score: str) -> Spread | None:
        return spread(r.scores[score] for r in self.scored if score in r.scores)

    @property
    def identified(self) -> float | None:
        """Rate among the scored pictures."""
        hits = [r.scores["retrieval"] for r in self.scored if "retrieval" in r.scores]
        return fmean(hits) if hits else None

    @property
    def seconds(self) -> float | None:
        return fmean(r.seconds for r in self.scored) if self.scored else None

    @property
    def backends(self) -> list[str]:
        return sorted({r.backend for r in self.scored if r.backend})

    @property
    def flags(self) -> Counter[str]:
        return Counter(flag for r in (*self.scored, *self.failed) for flag in r.flags)

    @property
    def notes(self) -> list[str]:
        return sorted({note for r in (*self.scored, *self.failed) for note in r.notes})


def cells(run: Run) -> list[Cell]:
    """Every cell of a run: the undefended model first, then the one that identifies and shows most."""
    groups: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in run.records:
        groups[record.scenario, record.defense, record.attack, record.attacker].append(record)
    found = [_cell(run, *key, records=records) for key, records in groups.items()]
    return sorted(found, key=lambda cell: (not cell.undefended, -(cell.identified or 0), -_most(cell.scored)))


def _cell(run: Run, scenario: str, defense: str, attack: str, attacker: str, records: list[Record]) -> Cell:
    return Cell(
        scenario=scenario,
        defense=defense,
        attack=attack,
        attacker=attacker,
        undefended=run.undefended(defense),
        scored=sorted((r for r in records if r.status == "ok"), key=leakage, reverse=True),
        failed=[r for r in records if r.status == "failed"],
    )


def _most(scored: Sequence[Record]) -> float:
    return leakage(scored[0]) if scored else float("-inf")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One defense: for each picture the attack that saw most of it."""

    defense: str
    undefended: bool
    attempted: int  # pictures
    scored: int
    identified: int | None
    psnr: Spread | None
    failed: int  # trials


def summaries(run: Run) -> list[Summary]:
    """The undefended model first, then the defenses, the one that leaks most first."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in run.records:
        groups[record.defense].append(record)
    found = [_summary(run, defense, records) for defense, records in groups.items()]
    return sorted(found, key=_worst_first)


def _worst_first(summary: Summary) -> tuple[bool, float, float]:
    rate = (summary.identified or 0) / max(summary.scored, 1)
    return not summary.undefended, -rate, -(summary.psnr.high if summary.psnr else float("-inf"))


def _summary(run: Run, defense: str, records: Sequence[Record]) -> Summary:
    trials: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        trials[record.scenario, record.client, record.example].append(record)
    psnr = _best(trials.values(), "psnr")
    hits = _best(trials.values(), "retrieval")
    return Summary(
        defense=defense,
        undefended=run.undefended(defense),
        attempted=len(trials),
        scored=sum(any(r.status == "ok" for r in of_one) for of_one in trials.values()),
        identified=sum(hit > 0 for hit in hits) if hits else None,
        psnr=spread(psnr),
        failed=sum(r.status == "failed" for r in records),
    )


def _best(trials: Iterable[list[Record]], score: str) -> list[float]:
    """For each picture the highest score over its trials; pictures without one are left out."""
    found = ([r.scores[score] for r in of_one if score in r.scores] for of_one in trials)
    return [max(values) for values in found if values]
