"""What a defense leaks: an audit of the models of its own training on the clients' own pictures, and its numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import Run, read_run
from gradveil.audit.verdict import Verdict, judge
from gradveil.audit.verdict.estimate import FactsOf
from gradveil.audit.verdict.positive import MOST_FAILED
from gradveil.audit.verdict.tally import Tally
from gradveil.config.build import name_of
from gradveil.config.load import to_tables
from gradveil.config.measure import metrics_of
from gradveil.config.schema import AuditConfig
from gradveil.config.training import tables_of
from gradveil.core.compute import Compute
from gradveil.core.metric import Facts
from gradveil.core.scenario import Scenario
from gradveil.data.draw import describe_rows
from gradveil.experiment.folder import VERDICT
from gradveil.experiment.progress import Progress
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of
from gradveil.report.conclude import conclude
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.estimates import Between, of_pictures, of_share
from gradveil.tradeoff.settings import LEAKED, StudySettings
from gradveil.tradeoff.split import StudySplit, Victims, choose_gallery, choose_victims


@dataclass(frozen=True, kw_only=True)
class Auditor:
    """Attacks the trained models of a study, one defense after the other, each in a folder of its own."""

    study: StudySettings
    split: StudySplit
    models: tuple[nn.Module, ...]  # untrained, one for each seed
    weights: Path  # folder of trained ones
    compute: Compute

    def __call__(self, candidate: Candidate, folder: Path, progress: Progress) -> None:
        run_audit(self.audit(candidate), folder, self.compute, progress)
        conclude(folder)

    def audit(self, candidate: Candidate) -> Audit:
        config = self.study.audit_config(candidate)
        hidden = self.victims()
        first, *others = self.scenarios(config, candidate, hidden)
        compared = choose_gallery(self.split, hidden)
        return Audit(
            scenario=first,
            also=tuple(others),
            early=self.models[0] if first.trained else None,
            defenses={candidate.label: candidate.build()},
            attacks={label: ATTACKS[choice.name](**choice.options) for label, choice in config.attack.items()},
            metrics=metrics_of(config, self.split.dataset, first.model, compared.images),
            seed=self.study.seed,
            gallery=compared.images,
            gallery_labels=compared.labels,
            lineup=config.lineup,
            convergence=config.convergence,
            sequence=config.sequence,
            settings=self.tables(config, first),
            origin={"rows": {f"seed-{n}": describe_rows(one.rows) for n, one in enumerate(hidden)}},
        )

    def tables(self, config: AuditConfig, scenario: Scenario) -> dict[str, object]:
        """What was attacked and how; `tradeoff` says that the models and pictures are those of a study."""
        training = scenario.training
        own = replace(config.scenario, **tables_of(training))
        return to_tables(replace(config, scenario=own)) | self.study.to_tables()

    def victims(self) -> list[Victims]:
        """Of every training whose models are attacked."""
        federations = map(self.study.federation, range(self.study.attacked_seeds))
        return [choose_victims(self.split, one, self.study.images, self.study.victim_batch) for one in federations]

    def scenarios(self, config: AuditConfig, candidate: Candidate, hidden: list[Victims]) -> Iterator[Scenario]:
        """Every attacked training at every attacked stage, the last stage of the first training first."""
        for number in range(len(hidden)):
            for stage in reversed(self.study.attacked_rounds()):
                yield self.scenario(config, candidate, hidden, number, stage)

    def scenario(
        self, config: AuditConfig, candidate: Candidate, hidden: Sequence[Victims], number: int, stage: int
    ) -> Scenario:
        """The victims of one training at one stage, 0 before it."""
        federation, found = self.study.federation(number), hidden[number]
        training = federation.local_training(self.study.victim_batch, stage / federation.rounds)
        return Scenario(
            name=f"{name_of(config.scenario)}-seed-{number}-round-{stage}",
            model=self.model(candidate, number, stage),
            private=found.private,
            names=found.names,
            training=replace(training, loss=self.split.dataset.loss),
            public=self.split.public,
            trained=stage > 0,
        )

    def model(self, candidate: Candidate, number: int, stage: int) -> nn.Module:
        model = candidate.build().model(copy.deepcopy(self.models[number]))  # as it was trained
        if stage:
            model.load_state_dict(load_file(self.weights / weights_file(candidate, number, stage)))
        return model.eval()


def weights_file(candidate: Candidate, number: int, stage: int) -> str:
    return f"{candidate.label}-seed-{number}-round-{stage}.safetensors"


def is_concluded(folder: Path) -> bool:
    return (folder / VERDICT).is_file()


def by_victim(scenario: str) -> str:
    """Stages of one training attack the same victims; those of another training are others."""
    return scenario.rpartition("-round-")[0]


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
    blank: Between | None = None  # of the same pictures, what the mean public picture reaches in PSNR
    broken: str = ""  # why these numbers say nothing
    flags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain = {key: value for key, value in vars(self).items() if key not in ("values", "measures", "blank")}
        return {
            **plain,
            "blank": self.blank and self.blank.to_json(),
            "measures": {name: value.to_json() for name, value in self.measures.items()},
        }


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
        blank=_blank(records),
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


def _blank(records: Sequence[Record]) -> Between | None:
    """Each picture once: it does not depend on the attack."""
    found = {
        f"{by_victim(record.scenario)}/{record.client}/{record.example}": record.blank
        for record in records
        if record.blank is not None
    }
    return of_pictures(list(found.values())) if found else None


def _broken(run: Run, tallies: Sequence[Tally], verdict: Verdict) -> str:
    """A failed attack is no protection: too many of them, and the point is a failed one."""
    failed, attempted = sum(t.failed for t in tallies), sum(t.attempted for t in tallies)
    if failed > MOST_FAILED * attempted:
        reason = next((r.reason for r in run.records if r.status == "failed"), "")
        return f"{failed} of {attempted} attacks failed: {reason}"
    if unscored := sum(t.pictures - t.scored for t in tallies):
        return f"{unscored} pictures have no score"
    return f"{verdict.missing} trials are missing" if verdict.missing else ""
