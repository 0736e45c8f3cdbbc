"""What follows from a run's journal: verdict, page, seal."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradveil.audit.results import read_run
from gradveil.audit.verdict import Verdict, write_verdict
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files
from gradveil.experiment.folder import JOURNAL, REPORT, SEAL, VERDICT, RunFolder
from gradveil.experiment.journal import is_being_written
from gradveil.experiment.seal import find_changes, seal
from gradveil.report.build import write_report
from gradveil.report.redact import redact_run

LOOK = 2.0  # seconds between looks at a run that is at work


def conclude(folder: str | Path, redact: bool = False, claim: float | None = None) -> Verdict:
    """Judge the run and write `verdict.json`, `report.html` and `seal.json`.

    A run that was changed since it was sealed is refused; one that lost its seal says so from now on. Of a run that is
    at work, verdict and page say what there is so far, and the run alone seals its folder, at its end.
    """
    folder = Path(folder)
    with _alone(folder):
        if is_being_written(folder / JOURNAL):
            with private_files():
                return _write(folder, redact, claim)
        run = read_run(folder)
        refuse_edited(run.folder)
        with private_files(), (home := RunFolder(run.folder)).interruptible():
            home.note_broken_seal("the report, made again")
            verdict = _write(folder, redact, claim)
            seal(run.folder)
    return verdict


def watch(folder: str | Path, redact: bool = False, claim: float | None = None) -> Iterator[Verdict]:
    """`conclude` now, whenever the run has finished something new, and at its end."""
    journal, size = Path(folder) / JOURNAL, -1
    while is_being_written(journal):
        if journal.stat().st_size not in (0, size):
            size = journal.stat().st_size
            yield conclude(folder, redact, claim)
        time.sleep(LOOK)
    yield conclude(folder, redact, claim)


def _write(folder: Path, redact: bool, claim: float | None) -> Verdict:
    run = read_run(folder)
    verdict = write_verdict(redact_run(run) if redact else run, claim)
    write_report(folder, redact=redact, claim=claim)
    return verdict


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time: a page of a run at work is never written after the seal of the finished one."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # what is wrong with the folder is said where it is read
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def refuse_edited(folder: Path) -> None:
    """What was measured must be as it was sealed: to seal it anew would hide the change."""
    if not (folder / SEAL).exists():
        return
    derived = tuple(f"{name}:" for name in (VERDICT, REPORT))
    if problems := [line for line in find_changes(folder) if not line.startswith(derived)]:
        raise ConfigError(f"{folder}/{problems[0]}")
