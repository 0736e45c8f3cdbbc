from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Event

import pytest
import torch
from toys import Raises, audit

from gradveil.audit.audit import judge_of
from gradveil.audit.schedule import shards
from gradveil.audit.trial import run_cell
from gradveil.core.compute import Compute
from gradveil.core.progress import Stopped, leave_if_stopped, listening, tick
from gradveil.core.threads import left_behind, threads, wait_for


def test_work_runs_on_as_many_threads_of_torch_as_told_and_ours_are_as_before() -> None:
    torch.set_num_threads(2)
    with threads(2, of_torch=1) as submit:
        assert [submit(torch.get_num_threads).result() for _ in range(4)] == [1] * 4
    assert torch.get_num_threads() == 2


def test_whoever_listens_hears_the_threads_too() -> None:
    heard: list[tuple[int, int]] = []
    with listening(lambda done, total: heard.append((done, total))), threads(1, of_torch=1) as submit:
        submit(tick, 3, 9).result()
    assert heard == [(3, 9)]


def steps_until_stopped(ended: Event) -> None:
    try:
        while True:
            time.sleep(0.001)
            leave_if_stopped()
    finally:
        ended.set()


def raise_beside(error: BaseException, work: Callable[[], None]) -> None:
    with threads(1, of_torch=1) as submit:
        submit(work)
        raise error


def test_an_error_waits_for_the_others_to_leave() -> None:
    ended = Event()
    with pytest.raises(ValueError, match="mine"):
        raise_beside(ValueError("mine"), partial(steps_until_stopped, ended))
    assert ended.is_set()


def test_ctrl_c_waits_for_nobody_and_they_leave_after_their_step() -> None:
    ended, go = Event(), Event()

    def one_long_step() -> None:
        go.wait(600)
        steps_until_stopped(ended)

    with pytest.raises(KeyboardInterrupt):
        raise_beside(KeyboardInterrupt(), one_long_step)
    assert left_behind(patience=0.01)
    go.set()
    assert not left_behind(patience=600)
    assert ended.is_set()


def test_whoever_is_stopped_outside_is_stopped_inside() -> None:
    ended = Event()

    def inner() -> None:
        with threads(1, of_torch=1) as submit:
            submit(steps_until_stopped, ended).result()

    with pytest.raises(KeyboardInterrupt):
        raise_beside(KeyboardInterrupt(), inner)
    assert ended.wait(600)
    assert not left_behind(patience=600)


def test_work_that_nobody_wants_is_no_failed_trial() -> None:
    stopped = audit({"a": Raises(error=Stopped())})
    cell = next(shards(stopped, Compute(), 32))[0]
    with pytest.raises(Stopped):
        run_cell(cell, judge_of(stopped))


def test_a_wait_looks_up_and_passes_on_results_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is heard by the main thread alone, and not while it waits for ever."""
    looks: list[float | None] = []

    class Counting(Future):
        def result(self, timeout: float | None = None) -> int:
            looks.append(timeout)
            if len(looks) == 3:
                self.set_result(7)
            return super().result(timeout)

    monkeypatch.setattr("gradveil.core.threads.LISTEN", 0.001)
    assert wait_for(Counting()) == 7
    assert looks == [0.001] * 3
    failing: Future[int] = Future()
    failing.set_exception(TimeoutError("of the work"))
    with pytest.raises(TimeoutError, match="of the work"):
        wait_for(failing)
