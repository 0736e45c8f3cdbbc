"""Where trainings become records and models, and models become audits. What is there already is not done again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import save

from gradveil.audit.trial import told
from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel.pool import Fanout
from gradveil.experiment.progress import Progress, Silent
from gradveil.experiment.record import Record
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.leakage import Auditor, is_concluded, weights_file
from gradveil.tradeoff.measured import Leakage, read_leakage
from gradveil.tradeoff.training import KEY, Taught, Trainer, Training, record_of

AUDIT = "audit"


@dataclass(kw_only=True)
class Desk:
    """One study's way from candidates to records. After `until`, on the monotonic clock, nothing new is begun."""

    points: Path  # folder of the audits
    journal: Journal
    fanout: Fanout
    progress: Progress
    trainer: Trainer
    auditor: Auditor
    until: float = float("inf")
    done: dict[str, Record] = field(init=False)
    told: int = field(init=False, default=0)  # trainings and audits whose end the progress has heard of

    def __post_init__(self) -> None:
        self.done = {record.key: record for record in self.journal.records}

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.until

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Tell the progress what is still to be done for these, beside what it has heard of already."""
        audits = sum(f"{AUDIT}/{one.label}" not in self.done for one in candidates)
        self.progress.begin(self.told + len(self.untrained(candidates, range(self.trainer.study.seeds))) + audits)

    def untrained(self, candidates: Sequence[Candidate], numbers: range) -> list[Training]:
        jobs = [Training(candidate=one, number=number) for number in numbers for one in candidates]
        return [job for job in jobs if job.key not in self.done]

    def train(self, candidates: Sequence[Candidate], numbers: range) -> None:
        """Every candidate with every seed of these, one seed after the other, so that time cut short is shared."""
        missing = self.untrained(candidates, numbers)
        if not missing or self.late:
            return
        self.progress.start(f"training 1 of {len(missing)}", 1)  # no name: workers end in any order
        for place, (job, taught) in enumerate(self.fanout.each(self.trainer, missing, _gave_up), start=1):
            self.keep(job, taught)
            self.ended(taught.reason)
            if self.late or place == len(missing):
                return
            self.progress.start(f"training {place + 1} of {len(missing)}", 1)

    def ended(self, reason: str) -> None:
        self.told += 1
        self.progress.done(1, int(bool(reason)))

    def keep(self, job: Training, taught: Taught) -> None:
        """Models before the record, so that no record speaks of a model that is not there."""
        for stage, weights in taught.weights.items():
            write_whole(self.auditor.weights / weights_file(job.candidate, job.number, stage), save(dict(weights)))
        self.append(record_of(job, taught, self.trainer.study.federation(job.number).seed))

    def append(self, record: Record) -> None:
        self.journal.append(record)
        self.done[record.key] = record

    def audit(self, candidates: Sequence[Candidate]) -> None:
        """Those whose attacked models are there; who failed to train is not attacked."""
        for one in candidates:
            key = f"{AUDIT}/{one.label}"
            if self.late or key in self.done or not self.is_trained(one):
                continue
            self.progress.start(f"attack {one.label}", self.trainer.study.images)
            reason = self.audited(one)
            self.append(_audit_record(key, one, reason))
            self.ended(reason)

    def audited(self, one: Candidate) -> str:
        """Why it failed, or nothing."""
        try:
            self.auditor(one, self.points / one.label, Silent())
        except (ConfigError, RuntimeError, ValueError) as error:
            return told(error)
        return ""

    def is_trained(self, one: Candidate) -> bool:
        keys = [Training(candidate=one, number=k).key for k in range(self.trainer.study.attacked_seeds)]
        return all(key in self.done and self.done[key].status == "ok" for key in keys)

    def trainings(self) -> Mapping[str, Mapping[int, Record]]:
        found: dict[str, dict[int, Record]] = defaultdict(dict)
        for record in self.done.values():
            if record.scenario == KEY:
                found[record.defense][record.example] = record
        return found

    def audits(self) -> dict[str, Leakage | str]:
        records = [record for record in self.done.values() if record.scenario == AUDIT]
        return {record.defense: self.read(record) for record in records}

    def read(self, record: Record) -> Leakage | str:
        folder = self.points / record.defense
        if record.status == "failed":
            return record.reason
        if not is_concluded(folder):
            raise ConfigError(f"{folder}: verdict.json is missing, restore the folder or begin another study")
        return read_leakage(folder)


def _gave_up(job: Training, why: str) -> Taught:
    return Taught(scores={}, weights={}, seconds=0.0, reason=why)


def _audit_record(key: str, one: Candidate, reason: str) -> Record:
    return Record(
        key=key,
        status="failed" if reason else "ok",
        scenario=AUDIT,
        defense=one.label,
        attack=AUDIT,
        attacker="adaptive",
        client="",
        example=0,
        seed=0,
        seconds=0.0,
        backend="",
        reason=reason,
    )
