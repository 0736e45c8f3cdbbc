"""What follows from a run's journal: verdict, page, seal."""

from __future__ import annotations

from pathlib import Path

from gradveil.audit.results import read_run
from gradveil.audit.verdict import Verdict, write_verdict
from gradveil.core.files import private_files
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.seal import seal
from gradveil.report.build import write_report
from gradveil.report.redact import redact_run


def conclude(folder: str | Path, redact: bool = False, claim: float | None = None) -> Verdict:
    """Judge the run and write `verdict.json`, `report.html` and `seal.json`."""
    run = read_run(Path(folder))
    with private_files(), RunFolder(run.folder).interruptible():
        verdict = write_verdict(redact_run(run) if redact else run, claim)
        write_report(run.folder, redact=redact, claim=claim)
        seal(run.folder)
    return verdict
