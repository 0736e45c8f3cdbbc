"""A recommendation on the way that all experiments go.

calibrate every defense to the same limit -> train with each that reaches it -> those that cost little enough, the
cheapest first: the line-up of its own trained models -> attack the winners -> what to deploy
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.calibrate.family import Family
from gradveil.calibrate.settings import check_pictures
from gradveil.core.compute import Compute
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import REPORT, RunFolder
from gradveil.experiment.progress import Progress
from gradveil.experiment.runner import Runner
from gradveil.experiment.seal import SEAL, seal
from gradveil.recommend.choose import Chooser
from gradveil.recommend.deploy import RESULT
from gradveil.recommend.lineups import PLAIN, ROOM, LineUps
from gradveil.recommend.outcome import Advice
from gradveil.recommend.page import write_advice_page
from gradveil.recommend.settings import RecommendSettings, check_settings
from gradveil.recommend.summary import answer
from gradveil.tradeoff.study import Study, StudyFolder, check_outer_folder


def recommend(
    settings: RecommendSettings,
    folder: str | Path,
    *,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    seconds: float | None = None,
) -> Advice:
    """Find the defense that hides the pictures and costs least accuracy. Goes on with what is in `folder`.

    settings: the limit, the accuracy that may be lost, model, data and training; see `RecommendSettings`.
    folder: where the models, the audits, recommendation.json and report.html go.
    compute: device and precision; `workers` processes or a Ray cluster do the work.
    progress: what shows how far it is; nothing by default.
    seconds: after this time no new training or attack is started; call again to resume. No limit by default.
    """
    return run(Recommendation(settings, seconds), folder, compute, progress)


class AdviceFolder(StudyFolder):
    """Laid out as a study, with results of its own."""

    result = RESULT
    derived = (RESULT, REPORT, SEAL)
    kind = "recommendation"
    results = "results"


class Recommendation(Experiment[Advice]):
    """Calibrations, trainings and attacks in one journal."""

    folder_type = AdviceFolder
    families: Mapping[str, Family]

    def __init__(self, settings: RecommendSettings, seconds: float | None = None) -> None:
        self.settings = settings
        self.study = Study(settings.study(), seconds)

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        self.families = check_settings(self.settings)
        check_outer_folder(home.user_path, RESULT)
        self.study.load(compute)
        auditor = self.study.auditor(home.user_path)
        bench = LineUps(settings=self.settings, auditor=auditor).untrained()
        check_pictures(ROOM * self.settings.named_at_most, bench.pictures)

    def to_tables(self) -> Mapping[str, Any]:
        return self.settings.to_tables()

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        return self.study.origin(config, compute)

    def play(self, runner: Runner) -> Advice:
        work = self.study.runner(runner)
        lineups = LineUps(settings=self.settings, auditor=work.auditor)
        runner.progress.begin(0)  # how many strengths a family needs turns out on the way
        bench = lineups.untrained()
        advised = [lineups.calibrate(runner, label, family, bench) for label, family in self.families.items()]
        chooser = Chooser(settings=self.settings, runner=runner, work=work, lineups=lineups)
        winners, advised = chooser.choose(chooser.train(advised))
        work.audit([one.candidate for one in advised if one.label in winners])
        found = Advice(
            settings=self.settings.to_tables()["recommend"],
            provenance=runner.brief_origin,
            plain=chooser.points()[PLAIN.label],
            advised=tuple(chooser.locate(advised)),
            winner=winners[0] if winners else "",
            guessing=guess_one_class(work.auditor.split.validation.labels),
        )
        return replace(found, sentences=tuple(answer(found)))

    def write(self, outcome: Advice, folder: Path) -> None:
        outcome.write(folder / RESULT)
        write_advice_page(outcome, folder / REPORT)
        seal(folder)


def guess_one_class(labels: Tensor) -> float:
    """The accuracy of always naming the most frequent class; of attributes, the mean over them."""
    single = bool((labels.sum(1) == 1).all())
    share = labels.mean(0)
    return float(share.max() if single else torch.maximum(share, 1 - share).mean())
