"""What a defense leaks: an audit like any other, on the models of its own training and the clients' own pictures."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit, run_audit
from gradveil.config.build import name_of
from gradveil.config.load import to_tables
from gradveil.config.measure import metrics_of
from gradveil.config.schema import AuditConfig
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario
from gradveil.experiment.folder import VERDICT
from gradveil.experiment.progress import Progress
from gradveil.report.conclude import conclude
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.settings import StudySettings
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
            metrics=metrics_of(config, self.split.dataset, first.model, compared),
            seed=self.study.seed,
            gallery=compared,
            convergence=config.convergence,
            sequence=config.sequence,
            settings=self.tables(config, first),
        )

    def tables(self, config: AuditConfig, scenario: Scenario) -> dict[str, object]:
        """What was attacked and how; `tradeoff` says that the models and pictures are those of a study."""
        training = scenario.training
        own = replace(config.scenario, local_steps=training.steps, local_rate=training.rate, loss=training.loss)
        return to_tables(replace(config, scenario=own)) | self.study.to_tables()

    def victims(self) -> list[Victims]:
        """Of every training whose models are attacked."""
        federations = map(self.study.federation, range(self.study.attacked_seeds))
        return [choose_victims(self.split, one, self.study.images, self.study.victim_batch) for one in federations]

    def scenarios(self, config: AuditConfig, candidate: Candidate, hidden: list[Victims]) -> Iterator[Scenario]:
        """Every attacked training at every attacked stage, the last stage of the first training first."""
        base = name_of(config.scenario)
        for number, found in enumerate(hidden):
            federation = self.study.federation(number)
            for stage in reversed(self.study.attacked_rounds()):
                training = federation.local_training(self.study.victim_batch, stage / federation.rounds)
                yield Scenario(
                    name=f"{base}-seed-{number}-round-{stage}",
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
