from __future__ import annotations

import io

import pytest
import torch

from gradveil.core.progress import listening, tick
from gradveil.core.time_limit import TimeLimit
from gradveil.experiment import progress
from gradveil.experiment.half_blocks import colors, draw
from gradveil.experiment.progress import Bar, Lines, Silent, for_stream
from gradveil.experiment.timed_progress import TimedBar, TimedLines, in_time


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_run_with_limited_time_has_a_line_a_minute() -> None:
    clock, out = [0.0], io.StringIO()
    lines = TimedLines(TimeLimit(600.0, clock=lambda: clock[0]), out)
    lines.begin(0)
    for cell in ("a", "b", "c", "d"):
        lines.start(cell, 2)
        clock[0] += 50
        lines.step(1, 9)
        lines.done(2, 1)
    assert out.getvalue().splitlines() == [
        "[0 of 600 s] 0 trials done, 0 failed; a",
        "[100 of 600 s] 2 trials done, 1 failed; b, step 1 of 9",
        "[200 of 600 s] 6 trials done, 3 failed; d, step 1 of 9",
    ]


def test_its_bar_is_the_time() -> None:
    clock = [0.0]
    bar = TimedBar(TimeLimit(600.0, clock=lambda: clock[0]))
    bar.begin(0)
    clock[0] = 150.0
    bar.start("a", 1)
    assert (bar.bar.tasks[0].completed, bar.bar.tasks[0].total) == (150.0, 600.0)
    clock[0] = 700.0
    bar.done(1, 0)
    assert bar.bar.tasks[0].completed == 600.0
    bar.end()


def test_who_is_told_of_the_time() -> None:
    limit = TimeLimit(1.0)
    assert isinstance(in_time(limit, False, io.StringIO()), TimedLines)
    assert isinstance(in_time(limit, False, Terminal()), TimedBar)
    assert isinstance(in_time(limit, True, Terminal()), Silent)
    assert type(in_time(None, False, io.StringIO())) is Lines


def test_the_time_left_of_the_run_is_said_where_it_is_known() -> None:
    out = io.StringIO()
    lines = Lines(out)
    lines.expect(600.0)
    lines.done(4, 0)
    assert out.getvalue().endswith("0 of 4 failed, about 10 min left in the run\n")


def test_half_blocks_are_the_picture() -> None:
    left, right = torch.zeros(3, 8, 4), torch.ones(3, 8, 4)
    right[1:] = 0
    found = colors(torch.cat([left, right], 2), widest=4)
    assert found == [[(0, 0, 0)] * 2 + [(255, 0, 0)] * 2] * 4
    assert colors(torch.full((1, 4, 4), float("nan")), widest=2) == [[(128, 128, 128)] * 2] * 2
    text = draw(torch.cat([left, right], 2), widest=4)
    assert text.plain == "\u2580\u2580\u2580\u2580\n" * 2


def test_pictures_are_drawn_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for wanted in (True, False):
        bar, printed = Bar(pictures=wanted), []
        monkeypatch.setattr(bar.bar.console, "print", lambda *what, printed=printed, **_: printed.append(what))
        bar.show(torch.zeros(3, 4, 4), "none / dlg")
        assert len(printed) == (2 if wanted else 0)
