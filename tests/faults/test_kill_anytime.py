"""Kills of a run with limited time: what is finished stays, no trial is run twice, and the end is the same."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from children import forked, records, until
from toys import Noise, audit

from gradveil.attacks.linear import linear
from gradveil.audit import audit as module
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.core.time_limit import TimeLimit

pytestmark = pytest.mark.more


@dataclass(frozen=True, kw_only=True)
class Search(Noise):
    """Takes steps that take no time."""

    steps: int = 512

    def scaled(self, factor: float) -> Search:
        return replace(self, steps=max(1, round(self.steps * factor)))

    @property
    def evaluations(self) -> tuple[int, int]:
        return self.steps, self.steps


def in_time() -> Audit:
    made = audit({"linear": linear(), "search": Search()}, clients=8, controls=True, lineup="auto")
    return replace(made, limit=TimeLimit(1000.0), sequence=True)


def work(folder: Path, slowness: float) -> None:
    """Every sync takes so many seconds, so that kills fall between trials."""
    os.fsync = lambda handle: time.sleep(slowness)
    module.measure_step = lambda *_: 0.1
    run_audit(in_time(), folder)


def size(folder: Path) -> int:
    journal = folder / "journal.jsonl"
    return journal.stat().st_size if journal.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr(module, "measure_step", lambda *_: 0.1)
        run_audit(in_time(), folder)
    return folder


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_change_nothing(kills: int, tmp_path: Path, undisturbed: Path) -> None:
    folder, rng, slowness = tmp_path / "run", random.Random(kills), 0.02 if kills < 100 else 0.2
    for _ in range(kills):
        before, kept = size(folder), records(folder)
        child = forked(partial(work, folder, slowness), tmp_path / "log")
        until(lambda before=before: size(folder) > before)
        time.sleep(rng.uniform(0.0, 0.1))
        child.kill(signal.SIGKILL)
        child.wait()
        assert records(folder)[: len(kept)] == kept
        if kept:
            assert not {f.verdict for f in judge(read_run(folder)).findings} & {"no leak found", "bounded"}
    assert 0 < len(records(folder)) < len(records(undisturbed))
    assert forked(partial(work, folder, 0.0), tmp_path / "log").wait() == 0
    keys = [record.key for record in records(folder)]
    assert len(set(keys)) == len(keys)
    stored = {record.key: record.scores for record in records(folder)}
    assert stored == {record.key: record.scores for record in records(undisturbed)}
    assert [f.verdict for f in judge(read_run(folder)).findings] == [
        f.verdict for f in judge(read_run(undisturbed)).findings
    ]
