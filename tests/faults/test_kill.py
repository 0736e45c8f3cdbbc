"""SIGKILL at any moment: nothing is lost, nothing is done twice, and the table is the same to the last byte."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from children import forked, records, table, until
from safetensors.torch import load_file
from toys import Noise, audit

from gradveil.attacks.linear import linear
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.core.compute import Compute

pytestmark = pytest.mark.more


class Small(Compute):
    """Shards that are done within the life of a child."""

    @property
    def shard(self) -> int:
        return 4


def many_trials() -> Audit:
    return audit({"linear": linear(), "noise": Noise(), "more": Noise()}, clients=30, examples=4, controls=True)


def work(folder: Path, slowness: float, compute: Compute) -> None:
    """Every sync takes so many seconds and does nothing: a kill is no power cut, and falls between steps of a write."""
    os.fsync = lambda handle: time.sleep(slowness)
    run_audit(many_trials(), folder, compute)


def pieces(folder: Path) -> set[Path]:
    return set((folder / "images").glob("*.part"))


def size(folder: Path) -> int:
    journal = folder / "journal.jsonl"
    return journal.stat().st_size if journal.exists() else 0


def killed_again_and_again(folder: Path, kills: int, life: float, slowness: float, compute: Compute) -> None:
    """Every one of the kills hits a run that is still at work: at any moment, or after it has finished something."""
    rng = random.Random(kills)
    for number in range(kills):
        before = size(folder)
        child = forked(partial(work, folder, slowness, compute), folder.with_suffix(".log"))
        if number % 3 == 2:
            until(lambda before=before: size(folder) > before)
        time.sleep(rng.uniform(0.01, life))
        child.kill(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, child.output.read_text()
        if number % 20 == 19 and records(folder):
            assert not {f.verdict for f in judge(read_run(folder)).findings} & {"no leak found", "bounded"}


def assert_undisturbed(folder: Path, undisturbed: Path) -> None:
    assert table(folder) == table(undisturbed)
    for record in records(folder):
        if record.images:
            stored, expected = (load_file(f / "images" / record.images) for f in (folder, undisturbed))
            assert all(stored[kind].equal(expected[kind]) for kind in expected)
    assert not pieces(folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        run_audit(many_trials(), folder, Small())
    assert len(records(folder)) >= 1500
    return folder


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_any_moment_change_nothing(kills: int, tmp_path: Path, undisturbed: Path) -> None:
    folder = tmp_path / "run"
    killed_again_and_again(folder, kills, 0.2, 0.008, Small())
    before = records(folder)
    print(f"{len(before)} of {len(records(undisturbed))} trials are there after {kills} kills")
    assert 0 < len(before) < len(records(undisturbed)), "a run that is killed must come on, and not be at its end"
    assert forked(partial(work, folder, 0.0, Small()), tmp_path / "log").wait() == 0
    assert records(folder)[: len(before)] == before, "what is finished is not done again"
    assert_undisturbed(folder, undisturbed)


def hold(folder: Path) -> None:
    run_audit(audit({"noise": Noise()}, clients=12, lineup="auto"), folder, Small())


def test_line_ups_that_were_killed_are_held_again(tmp_path: Path) -> None:
    """Each kill comes right after a shard of them is in the journal, while the next one is held."""
    hold(tmp_path / "whole")
    folder = tmp_path / "run"
    for _ in range(3):
        before = size(folder)
        child = forked(partial(hold, folder), tmp_path / "log")
        until(lambda before=before: size(folder) > before)
        child.kill(signal.SIGKILL)
        child.wait()
    kept = records(folder)
    assert any(record.control == "lineup" for record in kept)
    hold(folder)
    assert records(folder)[: len(kept)] == kept
    assert_undisturbed(folder, tmp_path / "whole")


@pytest.mark.slow
def test_a_thousand_kills_change_nothing(tmp_path: Path, undisturbed: Path) -> None:
    folder = tmp_path / "run"
    killed_again_and_again(folder, 1000, 0.25, 0.15, Small())  # slow enough to be at work after all of them
    assert 0 < len(records(folder)) < len(records(undisturbed))
    assert forked(partial(work, folder, 0.0, Small()), tmp_path / "log").wait() == 0
    assert_undisturbed(folder, undisturbed)


def test_kills_between_worker_processes_change_nothing(tmp_path: Path, undisturbed: Path) -> None:
    folder = tmp_path / "run"
    killed_again_and_again(folder, 5, 0.6, 0.005, Small(workers=2))
    assert 0 < len(records(folder)) < len(records(undisturbed))
    assert forked(partial(work, folder, 0.0, Small()), tmp_path / "log").wait() == 0
    assert_undisturbed(folder, undisturbed)
