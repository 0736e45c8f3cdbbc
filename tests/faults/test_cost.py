"""What it costs to survive: journal and hashes take at most 2 % of a run's processor time, hashes are made once a run,
and every record is read once when it goes on."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from children import records
from toys import Noise, audit

import gradveil.audit.audit
import gradveil.report.conclude
from gradveil.audit.audit import run_audit
from gradveil.audit.trial import fail_cell
from gradveil.config import build, from_tables
from gradveil.experiment import journal
from gradveil.experiment.folder import RunFolder
from gradveil.report.conclude import conclude

SHORT = {"name": "invertgrad", "steps": 100, "restarts": 1}


def count_calls(patch: pytest.MonkeyPatch, home: object, name: str, counts: Counter[str]) -> None:
    plain = getattr(home, name)

    def call(*given, **options):
        counts[name] += 1
        return plain(*given, **options)

    patch.setattr(home, name, call)


GOAL = 0.02  # of the run
SURVIVAL = (  # all that is done so that a run can be stopped, resumed and verified
    (journal.Journal, "extend"),
    (journal.Journal, "__init__"),
    (RunFolder, "save_pictures"),
    (RunFolder, "prepare"),
    (RunFolder, "finish"),
    (gradveil.audit.audit, "origin_of"),
    (gradveil.report.conclude, "seal"),
)


def measure_calls(patch: pytest.MonkeyPatch, home: object, name: str, seconds: Counter[str]) -> None:
    """Processor time of all calls, those within others counted twice: at worst the cost is shown too high."""
    plain = getattr(home, name)

    def call(*given, **options):
        start = time.process_time()
        try:
            return plain(*given, **options)
        finally:
            seconds[name] += time.process_time() - start  # type: ignore[assignment]

    patch.setattr(home, name, call)


@pytest.mark.more
def test_journal_and_hashes_take_two_percent_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tenth of the demo: pictures, model, attack and defenses are the default audit's, its steps a tenth."""
    seconds: Counter[str] = Counter()
    built = build(
        from_tables({"scenario": {"images": 1}, "attack": {"invertgrad": SHORT}, "convergence": False, "lineup": 0})
    )
    for home, name in SURVIVAL:
        measure_calls(monkeypatch, home, name, seconds)
    start = time.process_time()
    run_audit(built, tmp_path / "run")
    conclude(tmp_path / "run")
    whole = time.process_time() - start
    assert seconds.keys() == {name for _, name in SURVIVAL}
    assert seconds.total() < GOAL * whole, {name: f"{100 * one / whole:.2f} %" for name, one in seconds.items()}


def test_models_and_pictures_are_hashed_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for home, name in ((gradveil.audit.audit, "origin_of"), (RunFolder, "prepare"), (RunFolder, "finish")):
        count_calls(monkeypatch, home, name, counts)
    run_audit(audit({"a": Noise(), "b": Noise()}), tmp_path / "run")
    assert counts == {"origin_of": 1, "prepare": 1, "finish": 1}


def test_a_run_of_ten_thousand_records_goes_on_and_reads_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(
            "gradveil.audit.runner.attack", lambda group, judge: fail_cell(group[0], "x") + fail_cell(group[-1], "x")
        )
        run_audit(audit({"a": Noise()}, clients=2500, controls=True), tmp_path / "run")
    found = len(records(tmp_path / "run"))
    assert found >= 10_000
    again, counts = Noise(), Counter[str]()
    count_calls(monkeypatch, journal, "decode", counts)
    run_audit(audit({"a": again}, clients=2500, controls=True), tmp_path / "run")
    assert counts["decode"] == found
    assert again.seen == []
