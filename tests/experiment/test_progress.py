from __future__ import annotations

import io

import pytest

from gradveil.core.progress import listening, tick
from gradveil.experiment import progress
from gradveil.experiment.progress import Bar, Lines, Silent, for_stream


def test_a_tick_is_heard_inside_only() -> None:
    heard: list[tuple[int, int]] = []
    tick(1, 9)
    with listening(lambda done, total: heard.append((done, total))):
        tick(2, 9)
        with listening(lambda done, total: None):
            tick(3, 9)
        tick(4, 9)
    tick(5, 9)
    assert heard == [(2, 9), (4, 9)]


def test_lines_tell_the_time_left_but_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    lines = Lines(out, every=10)
    lines.begin(2)
    lines.start("none / dlg / unaware", 4)
    for step in range(1, 5):
        clock[0] += 6
        lines.step(step, 8)
    lines.done(4, 1)
    assert out.getvalue().splitlines() == [
        "[1/2] none / dlg / unaware: 4 trials",
        "    step 2 of 8, about 36 s left in this cell",
        "    step 4 of 8, about 24 s left in this cell",
        "    done in 24.0 s, 1 of 4 failed",
    ]


def test_what_nobody_can_count_has_no_total() -> None:
    out, bar = io.StringIO(), Bar()
    lines = Lines(out, every=10)
    for shown in (lines, bar):
        shown.begin(0)
        shown.start("gaussian", 33)
        shown.end()
    assert out.getvalue() == "[1] gaussian: 33 trials\n"
    assert bar.bar.tasks[0].total is None


def test_the_bar_counts_cells_and_their_steps() -> None:
    bar = Bar()
    bar.begin(2)
    bar.start("[red]a cell", 4)
    bar.step(5, 10)
    assert bar.bar.tasks[0].completed == 0.5
    bar.done(4, 0)
    bar.start("b", 4)
    bar.step(1, 4)
    assert bar.bar.tasks[0].completed == 1.25
    bar.done(4, 0)
    bar.end()
    assert bar.bar.finished


def test_a_log_gets_lines_a_terminal_a_bar_and_quiet_nothing() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(for_stream(False, io.StringIO()), Lines)
    assert isinstance(for_stream(False, Terminal()), Bar)
    assert isinstance(for_stream(True, Terminal()), Silent)
