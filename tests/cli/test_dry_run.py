"""`gradveil audit --dry-run`, and the question before a run of hours."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from gradveil.audit import estimate as measuring
from gradveil.audit.estimate import Estimate, Part
from gradveil.cli import _estimate as asking
from gradveil.cli import main
from gradveil.core.compute import Compute

TINY = ["audit", "--data", "digits", "--data-option", "size=8", "--model", "mlp", "--images", "2", "--gallery", "20"]
SEARCH = ["--attack", "invertgrad:steps=4,restarts=1", "--no-convergence"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def test_a_dry_run_says_how_long_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*TINY, *SEARCH, "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "part"
    assert [line.split()[0] for line in lines[1:4]] == ["invertgrad", "line-up", "whole"]
    assert all(f"{budget} " in lines[4] for budget in ("quick", "standard", "thorough"))
    assert not [*tmp_path.iterdir()]


def test_as_json_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*TINY, *SEARCH, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["least"] <= found["most"]
    assert {"quick", "standard", "thorough"} == set(found["budgets"])
    assert sum(part["most"] for part in found["parts"]) == pytest.approx(found["most"])


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*TINY, "--attack", "nothing", "--dry-run") == 2
    assert capsys.readouterr().err.count("\n") == 1


def answers(monkeypatch: pytest.MonkeyPatch, seconds: float, *, terminal: bool, says: bool = False) -> list[str]:
    """The questions that are asked about a run of so many seconds."""
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return says

    found = Estimate(parts=(Part(name="dlg", least=seconds, most=seconds),), measured=0.0)
    monkeypatch.setattr(measuring, "estimate", lambda *_, **__: found)
    monkeypatch.setattr(typer, "confirm", confirm)
    stream = SimpleNamespace(isatty=lambda: terminal, write=lambda text: None, flush=lambda: None)
    monkeypatch.setattr(asking.sys, "stdin", stream)
    monkeypatch.setattr(asking.sys, "stderr", stream)
    return asked


def test_above_an_hour_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, 4000, terminal=True, says=True)
    asking.confirm_long_run(None, Compute(), yes=False)  # type: ignore[arg-type]
    assert asked == ["Start it?"]


def test_who_says_no_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, 4000, terminal=True, says=False)
    with pytest.raises(typer.Exit):
        asking.confirm_long_run(None, Compute(), yes=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "terminal", "yes"), [(4000, True, True), (4000, False, False), (3000, True, False), (5, True, False)]
)
def test_nobody_else_is_asked(seconds: float, terminal: bool, yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, seconds, terminal=terminal)
    asking.confirm_long_run(None, Compute(), yes=yes)  # type: ignore[arg-type]
    assert asked == []


@pytest.mark.parametrize(("seconds", "lines"), [(5, 0), (300, 1), (4000, 2)])
def test_a_log_gets_the_line_and_the_cheaper_ways(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Estimate(parts=(Part(name="dlg", least=seconds, most=seconds),), measured=0.0)
    monkeypatch.setattr(measuring, "estimate", lambda *_, **__: found)
    asking.confirm_long_run(None, Compute(), yes=False)  # type: ignore[arg-type]
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert lines == 0 or said[0].startswith("this audit takes about ")
