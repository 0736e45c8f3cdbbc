"""At the end of the time what still runs is left, wherever it runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gradveil.core.compute import Compute
from gradveil.core.progress import leave_if_stopped
from gradveil.core.threads import left_behind
from gradveil.core.time_limit import OutOfTime, TimeLimit
from gradveil.experiment.parallel.pool import Pool

ENDLESS = 600.0  # seconds; no test waits for it


def take_steps(place: Path) -> int:
    """A job of many steps. It says that it has begun, and looks whether it is still wanted, as every search does."""
    place.touch()
    until = time.monotonic() + ENDLESS
    while time.monotonic() < until:
        leave_if_stopped()
        time.sleep(0.001)
    return 1


def be_quick(place: Path) -> int:
    return 2


@pytest.mark.parametrize("pool", [Pool(all_threads=True), Pool(workers=1)], ids=["threads", "processes"])
def test_what_runs_is_left(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        list(pool.each(take_steps, [tmp_path / "begun"], until=time.monotonic() + 1.0))
    assert (tmp_path / "begun").exists()
    assert not left_behind(patience=30.0), "a thread leaves at its next step"


@pytest.mark.parametrize(
    "pool", [Pool(), Pool(all_threads=True), Pool(workers=1)], ids=["here", "threads", "processes"]
)
def test_in_time_nothing_is_different(pool: Pool, tmp_path: Path) -> None:
    jobs = [tmp_path / "a", tmp_path / "b"]
    assert list(pool.each(be_quick, jobs, until=time.monotonic() + ENDLESS)) == [(job, 2) for job in jobs]


@pytest.mark.parametrize("pool", [Pool(), Pool(workers=1)], ids=["here", "processes"])
def test_when_the_time_is_over_nothing_begins(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        list(pool.each(take_steps, [tmp_path / "begun"], until=time.monotonic() - 1.0))


def test_some_of_the_time_is_kept_for_the_page() -> None:
    clock = [5.0]
    limit = TimeLimit(600.0, clock=lambda: clock[0])
    clock[0] = 105.0
    assert (limit.elapsed, limit.remaining) == (100.0, 480.0)
    assert TimeLimit(60.0, clock=lambda: 0.0).remaining == pytest.approx(54.0)


def test_a_limit_is_what_was_given_or_else_configured() -> None:
    assert TimeLimit.of(0.0) is None
    assert (configured := TimeLimit.of(60.0)) is not None
    assert configured.seconds == 60.0
    assert (given := TimeLimit.of(60.0, 5.0, start=1.0)) is not None
    assert (given.seconds, given.start) == (5.0, 1.0)
    assert Compute().limit is None
