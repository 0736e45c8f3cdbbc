"""A calibration on the way that all experiments go: settings, folder, journal, result file, page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradveil.calibrate.bench import Bench, load_bench
from gradveil.calibrate.family import Family
from gradveil.calibrate.measure import calibrate_family
from gradveil.calibrate.outcome import CalibrationOutcome
from gradveil.calibrate.page import write_calibration_page
from gradveil.calibrate.settings import CalibrationSettings, check_settings
from gradveil.core.compute import Compute
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import CONFIG, JOURNAL, PROVENANCE, REPORT, RunFolder
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import provenance
from gradveil.experiment.runner import Runner
from gradveil.experiment.seal import SEAL, SIGNATURE, seal

RESULT = "calibration.json"


def calibrate(
    settings: CalibrationSettings,
    folder: str | Path,
    *,
    compute: Compute = Compute(),
    progress: Progress | None = None,
) -> CalibrationOutcome:
    """Find the least strength of a defense at which the line-up names few enough pictures.

    settings: the defense, the limit, model, data and training; see `CalibrationSettings`.
    folder: where the journal, calibration.json and report.html go; the folder of the same calibration is continued.
    compute: device and precision; `workers` processes or a Ray cluster hold the line-ups.
    progress: what shows how far it is; nothing by default.
    """
    return run(Calibration(settings), folder, compute, progress)


class CalibrationFolder(RunFolder):
    """Its journal holds line-ups and no trials of attacks."""

    files = (CONFIG, PROVENANCE, JOURNAL, RESULT, REPORT, SEAL, SIGNATURE)
    folders = ()
    derived = (RESULT, REPORT, SEAL)
    kind = "calibration"
    results = "results"

    def create(self) -> None:
        super().create()
        self.path.mkdir(parents=True, exist_ok=True)


class Calibration(Experiment[CalibrationOutcome]):
    """One family of defenses, from its settings to its page."""

    folder_type = CalibrationFolder
    family: Family
    bench: Bench

    def __init__(self, settings: CalibrationSettings) -> None:
        self.settings = settings

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        self.family, config = check_settings(self.settings)
        Pool.of(compute).check(compute.device)
        self.bench = load_bench(config, self.settings.standins, compute, self.settings.lineup)

    def to_tables(self) -> Mapping[str, Any]:
        return self.settings.to_tables()

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        bench = self.bench
        return provenance(bench.scenario, bench.gallery.images, config, self.settings.seed, compute)

    def play(self, runner: Runner) -> CalibrationOutcome:
        by_hand = self.settings.lineup is not None or self.settings.standins is not None
        found = calibrate_family(runner, self.bench, self.family, self.settings.named_at_most, may_shrink=not by_hand)
        return CalibrationOutcome(
            settings=self.settings.to_tables()["calibrate"], found=found, provenance=runner.brief_origin
        )

    def write(self, outcome: CalibrationOutcome, folder: Path) -> None:
        outcome.write(folder / RESULT)
        write_calibration_page(outcome, folder / REPORT)
        seal(folder)
