"""What it costs to survive, in work and not in seconds: hashes once a run, every record read once when it goes on."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from children import records
from toys import Noise, audit

import gradveil.audit.audit
from gradveil.audit.audit import run_audit
from gradveil.audit.trial import fail_cell
from gradveil.experiment import journal
from gradveil.experiment.folder import RunFolder


def count_calls(patch: pytest.MonkeyPatch, home: object, name: str, counts: Counter[str]) -> None:
    plain = getattr(home, name)

    def call(*given, **options):
        counts[name] += 1
        return plain(*given, **options)

    patch.setattr(home, name, call)


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
