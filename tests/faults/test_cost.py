"""What it costs to survive: the share of a run that goes into journal, pictures and hashes, and the time to go on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from children import records
from toys import Noise, audit

import gradveil.audit.audit
from gradveil.audit.audit import run
from gradveil.audit.trial import failed
from gradveil.config import build, from_tables
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal

KEEPING = (
    (Journal, "append"),
    (Journal, "__init__"),
    (RunFolder, "save_pictures"),
    (RunFolder, "prepare"),
    (RunFolder, "check"),
    (RunFolder, "finish"),
    (gradveil.audit.audit, "origin_of"),
)


def timed(patch: pytest.MonkeyPatch, spent: list[float]) -> None:
    """Every part of keeping a run adds its seconds; none of them calls another."""
    for home, name in KEEPING:
        plain = getattr(home, name)

        def call(*given, _plain=plain, **options):
            start = time.monotonic()
            try:
                return _plain(*given, **options)
            finally:
                spent.append(time.monotonic() - start)

        patch.setattr(home, name, call)


def test_journal_pictures_and_hashes_take_a_small_share_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property
) -> None:
    """2 % is the aim, on a run of seconds; the bound leaves room for a disk that others write to as well."""
    scenario = {"data": "digits", "model": "lenet", "images": 8}
    attack = {"invertgrad": {"steps": 80, "restarts": 1}}
    audited = build(from_tables({"scenario": scenario, "attack": attack, "defense": {"none": {}}, "metrics": ["psnr"]}))
    spent: list[float] = []
    timed(monkeypatch, spent)
    start = time.monotonic()
    run(audited, tmp_path / "run")
    share = sum(spent) / (time.monotonic() - start)
    record_property("share", share)
    print(f"share of keeping: {share:.2%} of {time.monotonic() - start:.1f} s, {len(records(tmp_path / 'run'))} trials")
    assert len(spent) > len(records(tmp_path / "run"))
    assert share < 0.25


def test_a_run_of_ten_thousand_records_goes_on_within_three_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(
            "gradveil.audit.runner.attack", lambda group, judge: failed(group[0], "x") + failed(group[-1], "x")
        )
        run(audit({"a": Noise()}, clients=2500, controls=True), tmp_path / "run")
    found = len(records(tmp_path / "run"))
    assert found >= 10_000
    again = Noise()
    start = time.monotonic()
    run(audit({"a": again}, clients=2500, controls=True), tmp_path / "run")
    took = time.monotonic() - start
    print(f"{found} records, went on after {took:.2f} s")
    assert took < 3
    assert again.seen == []
