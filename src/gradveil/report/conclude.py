"""What follows from a run's journal: verdict, page, seal."""

from __future__ import annotations

from pathlib import Path

from gradveil.audit.results import read_run
from gradveil.audit.verdict import Verdict, write_verdict
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files
from gradveil.experiment.folder import REPORT, SEAL, VERDICT, RunFolder
from gradveil.experiment.seal import find_changes, seal
from gradveil.report.build import write_report
from gradveil.report.redact import redact_run


def conclude(folder: str | Path, redact: bool = False, claim: float | None = None) -> Verdict:
    """Judge the run and write `verdict.json`, `report.html` and `seal.json`.

    A run that was changed since it was sealed is refused; one that lost its seal says so from now on.
    """
    run = read_run(Path(folder))
    refuse_edited(run.folder)
    with private_files(), (home := RunFolder(run.folder)).interruptible():
        if home.note_broken_seal("the report, made again"):
            run = read_run(run.folder)
        verdict = write_verdict(redact_run(run) if redact else run, claim)
        write_report(run.folder, redact=redact, claim=claim)
        seal(run.folder)
    return verdict


def refuse_edited(folder: Path) -> None:
    """What was measured must be as it was sealed: to seal it anew would hide the change."""
    if not (folder / SEAL).exists():
        return
    derived = tuple(f"{name}:" for name in (VERDICT, REPORT))
    if problems := [line for line in find_changes(folder) if not line.startswith(derived)]:
        raise ConfigError(f"{folder}/{problems[0]}")
