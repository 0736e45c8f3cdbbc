"""Verdict and page of a run that is at work: they say what is there, and leave the seal to the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.attacks.linear import linear
from gradveil.audit.audit import Audit, run_audit
from gradveil.core.time_limit import TimeLimit
from gradveil.experiment.folder import SEAL
from gradveil.experiment.journal import Journal, is_being_written
from gradveil.experiment.seal import find_changes
from gradveil.report import conclude as module
from gradveil.report.conclude import conclude, watch


def small() -> Audit:
    return audit({"linear": linear(), "noise": Noise()}, controls=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_audit(small(), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_at_work_has_a_page_and_no_seal(folder: Path) -> None:
    with Journal(folder / "journal.jsonl"):
        before = (folder / "provenance.json").read_bytes()
        assert conclude(folder).word == "leaks"
        assert "leaks" in (folder / "report.html").read_text()
        assert not (folder / SEAL).exists()
        assert (folder / "provenance.json").read_bytes() == before
    conclude(folder)
    assert not find_changes(folder)


def test_its_journal_stays_locked_and_open_to_its_writer(folder: Path) -> None:
    assert not is_being_written(folder / "journal.jsonl")
    with Journal(folder / "journal.jsonl") as journal:
        assert is_being_written(folder / "journal.jsonl")
        journal.append(replace(journal.records[0], key="another"))
        assert conclude(folder)
    assert not is_being_written(folder / "journal.jsonl")
    assert not is_being_written(folder / "nothing")


def test_watching_writes_again_as_results_come_and_seals_at_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(folder / "journal.jsonl")
    extra, looks = journal.records[0], []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            journal.append(replace(extra, key="another"))
        if len(looks) == 4:
            journal.file.close()

    monkeypatch.setattr(module.time, "sleep", look)
    assert len(list(watch(folder))) == 3  # at once, after the new record, and at the end
    assert len(looks) == 4
    assert (folder / SEAL).exists()


def test_a_run_without_any_result_has_a_page(tmp_path: Path) -> None:
    now = [0.0]
    made = replace(small(), limit=TimeLimit(1.0, clock=lambda: now[0]))
    now[0] = 10.0
    run_audit(made, tmp_path / "run")
    assert conclude(tmp_path / "run").word in ("inconclusive", "not evaluated")
    assert "not evaluated" in (tmp_path / "run" / "report.html").read_text()
    assert conclude(tmp_path / "run", redact=True).word in ("inconclusive", "not evaluated")
