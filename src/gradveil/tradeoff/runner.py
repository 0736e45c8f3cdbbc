"""From candidates to trained models, and from models to audits. What is there already is not done again."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save

from gradveil.audit.trial import describe
from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.experiment.progress import Silent
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.leakage import Auditor, Leakage, is_concluded, read_leakage, weights_file
from gradveil.tradeoff.training import KEY, Trainer, Training, TrainingResult, record_of

AUDIT = "audit"


@dataclass(kw_only=True)
class StudyRunner:
    """Trains and attacks the candidates of a study. After `until`, on the monotonic clock, nothing new is begun."""

    runner: Runner
    points: Path  # folder of the audits
    trainer: Trainer
    auditor: Auditor
    until: float = float("inf")
    finished: int = 0  # trainings and audits that the progress has seen end

    @property
    def late(self) -> bool:
        return time.monotonic() >= self.until

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Tell the progress what is still to be done for these, beside what it has seen end already."""
        audits = sum(f"{AUDIT}/{one.label}" not in self.runner.done for one in candidates)
        missing = self.missing(candidates, range(self.trainer.study.seeds))
        self.runner.progress.begin(self.finished + len(missing) + audits)

    def missing(self, candidates: Sequence[Candidate], numbers: range) -> list[Training]:
        jobs = [Training(candidate=one, number=number) for number in numbers for one in candidates]
        return [job for job in jobs if job.key not in self.runner.done]

    def train(self, candidates: Sequence[Candidate], numbers: range) -> None:
        """Every candidate with every seed of these, one seed after the other, so that time cut short is shared."""
        missing, progress = self.missing(candidates, numbers), self.runner.progress
        if not missing or self.late:
            return
        progress.start(f"training 1 of {len(missing)}", 1)  # no name: workers end in any order
        for place, (job, result) in enumerate(self.runner.each(self.trainer, missing, _give_up), start=1):
            self.keep(job, result)
            self.finish(result.reason)
            if self.late or place == len(missing):
                return
            progress.start(f"training {place + 1} of {len(missing)}", 1)

    def finish(self, reason: str) -> None:
        self.finished += 1
        self.runner.progress.done(1, int(bool(reason)))

    def keep(self, job: Training, result: TrainingResult) -> None:
        """Models before the record, so that no record speaks of a model that is not there."""

        def write_models() -> None:
            for stage, weights in result.weights.items():
                write_whole(self.auditor.weights / weights_file(job.candidate, job.number, stage), save(dict(weights)))

        seed = self.trainer.study.federation(job.number).seed
        self.runner.keep([record_of(job, result, seed)], write_models)

    def audit(self, candidates: Sequence[Candidate]) -> None:
        """Those whose attacked models are there; who failed to train is not attacked."""
        for one in candidates:
            key = f"{AUDIT}/{one.label}"
            if self.late or key in self.runner.done or not self.is_trained(one):
                continue
            self.runner.progress.start(f"attack {one.label}", self.trainer.study.images)
            reason = self.attack(one)
            self.runner.keep([_audit_record(key, one, reason)])
            self.finish(reason)

    def attack(self, one: Candidate) -> str:
        """Audit one candidate; why that failed, or nothing."""
        try:
            self.auditor(one, self.points / one.label, Silent())
        except (ConfigError, RuntimeError, ValueError) as error:
            return describe(error)
        return ""

    def is_trained(self, one: Candidate) -> bool:
        keys = [Training(candidate=one, number=k).key for k in range(self.trainer.study.attacked_seeds)]
        return all(key in self.runner.done and self.runner.done[key].status == "ok" for key in keys)

    def trainings(self) -> Mapping[str, Mapping[int, Record]]:
        found: dict[str, dict[int, Record]] = defaultdict(dict)
        for record in self.runner.done.values():
            if record.scenario == KEY:
                found[record.defense][record.example] = record
        return found

    def audits(self) -> dict[str, Leakage | str]:
        records = [record for record in self.runner.done.values() if record.scenario == AUDIT]
        return {record.defense: self.read(record) for record in records}

    def read(self, record: Record) -> Leakage | str:
        folder = self.points / record.defense
        if record.status == "failed":
            return record.reason
        if not is_concluded(folder):
            raise ConfigError(f"{folder}: verdict.json is missing, restore the folder or begin another study")
        return read_leakage(folder)


def _give_up(job: Training, why: str) -> TrainingResult:
    return TrainingResult(scores={}, weights={}, seconds=0.0, reason=why)


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
