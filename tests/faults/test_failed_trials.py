"""One trial that fails: it is counted with its reason, and the others keep their scores."""

from __future__ import annotations

import itertools
import math
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from children import records
from scenes import as_float32, one_picture
from toys import Noise, audit

from gradveil.attacks.invertgrad import invertgrad
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.descent import Objective
from gradveil.experiment.progress import Lines
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS

PLAIN = {"none": Defense()}


def allocate_too_much() -> None:
    torch.empty(2**50)


def raise_memory_error() -> None:
    raise MemoryError


def raise_value_error() -> None:
    raise ValueError("not of this client")


@dataclass(frozen=True, kw_only=True)
class Spoiled(Noise):
    """One client's update spoils the batch that it is in."""

    how: object = field(repr=False)
    culprit: str = "c0002"

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        if self.culprit in seen.names:
            self.how()  # type: ignore[operator]
        return super().reconstruct(seen, seed, compute)


def by_key(folder: Path) -> dict[str, Record]:
    return {record.key: record for record in records(folder)}


@pytest.mark.parametrize("how", [allocate_too_much, raise_memory_error, raise_value_error])
def test_one_client_that_raises_fails_alone(how, tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}, clients=5, controls=True), tmp_path / "sound")
    run_audit(audit({"a": Spoiled(how=how)}, clients=5, controls=True), tmp_path / "spoiled")
    sound, spoiled = by_key(tmp_path / "sound"), by_key(tmp_path / "spoiled")
    assert sound.keys() == spoiled.keys()
    for key, record in spoiled.items():
        if record.client == "c0002" or record.control == "another":  # nobody to compare with when each runs alone
            assert (record.status, record.scores, record.images) == ("failed", {}, "")
            assert record.reason.split(":")[0] in ("RuntimeError", "MemoryError", "ValueError")
            assert "\n" not in record.reason
        else:
            assert (record.status, record.scores, record.loss) == ("ok", sound[key].scores, sound[key].loss)
            assert any(note.startswith("run alone, since the batch failed: ") for note in record.notes)


def test_failures_are_no_protection(tmp_path: Path) -> None:
    """An attack that fails on a few pictures says nothing about them: no verdict may rest on it."""
    run_audit(audit({"a": Spoiled(how=raise_value_error)}, clients=20, controls=True), tmp_path / "run")
    verdict = judge(read_run(tmp_path / "run"))
    assert {finding.verdict for finding in verdict.findings} <= {"inconclusive", "not evaluated", "leaks"}


def test_an_attack_that_cannot_work_at_all_is_tried_once(tmp_path: Path) -> None:
    calls = []

    def cannot() -> None:
        calls.append(1)
        raise NotApplicableError("this model has nothing to read")

    run_audit(audit({"a": Spoiled(how=cannot)}, PLAIN, clients=5), tmp_path / "run")
    assert len(calls) == 1
    assert {(r.status, r.reason) for r in records(tmp_path / "run")} == {
        ("failed", "NotApplicableError: this model has nothing to read")
    }


def search(steps: int) -> Audit:
    scenario = as_float32(one_picture(3))
    attacks = {"search": invertgrad(steps=steps, restarts=1)}
    return Audit(scenario=scenario, defenses=PLAIN, attacks=attacks, metrics=(METRICS["psnr"](),), controls=False)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_search_that_breaks_off_fails_with_the_step_and_never_has_a_score(
    bad: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_audit(search(20), tmp_path / "sound")
    plain, calls = Objective.__call__, itertools.count()

    def breaks(self: Objective, z):
        total, match, slope = plain(self, z)
        if len(total) == 3 and next(calls) == 7:  # the memory of two is measured first
            total = total.clone()
            total[1] = bad
        return total, match, slope

    monkeypatch.setattr(Objective, "__call__", breaks)
    run_audit(search(20), tmp_path / "broken")
    sound, broken = by_key(tmp_path / "sound"), by_key(tmp_path / "broken")
    for key, record in broken.items():
        if record.client == "client-1":
            assert (record.status, record.scores, record.images) == ("failed", {}, "")
            assert record.reason == "the attacker's loss is not finite from step 7 on"
            assert "non-finite" in record.flags
        else:
            assert record.scores == sound[key].scores


def test_of_several_restarts_those_that_break_off_are_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = Objective.__call__, itertools.count()

    def breaks(self: Objective, z):
        total, match, slope = plain(self, z)
        if len(total) == 6 and next(calls) == 7:
            total = total.clone()
            total[2] = math.nan  # the first of the second client's two
        return total, match, slope

    monkeypatch.setattr(Objective, "__call__", breaks)
    two = search(20)
    run_audit(Audit(**{**vars(two), "attacks": {"search": invertgrad(steps=20, restarts=2)}}), tmp_path / "run")
    assert {r.status for r in records(tmp_path / "run")} == {"ok"}


def test_a_clock_that_jumps_gives_no_negative_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = itertools.cycle([0, 1, -1, 0.5, -2])
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86_400 * next(days))
    noon = datetime(2025, 3, 30, 12, tzinfo=UTC)
    for module in ("folder", "provenance"):
        monkeypatch.setattr(
            f"gradveil.experiment.{module}.now", lambda: (noon + timedelta(days=next(days))).isoformat()
        )
    with (tmp_path / "log").open("w") as log:
        run_audit(
            audit({"a": Noise(), "b": Noise()}, clients=4, controls=True), tmp_path / "run", progress=Lines(log, 0.0)
        )
        run_audit(
            audit({"a": Noise(), "b": Noise()}, clients=4, controls=True), tmp_path / "run", progress=Lines(log, 0.0)
        )
    assert all(record.seconds >= 0 for record in records(tmp_path / "run"))
    report = re.findall(r"(-?[\d.]+) s\b", (tmp_path / "log").read_text())
    assert report
    assert all(float(seconds) >= 0 for seconds in report)
