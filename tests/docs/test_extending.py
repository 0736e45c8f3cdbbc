"""docs/extending.md does what it says: its blocks run in order, and its table is what they measure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.cli import main

PAGE = ROOT / "docs/extending.md"
WITHIN = 1.5  # dB: signed gradients are chaotic, and another machine rounds otherwise


@pytest.fixture
def session(desk: Path) -> dict[str, Any]:
    """The page, read to its end."""
    names: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.language == "python" and block.file:
            (desk / block.file).write_text(block.text)
        elif block.language == "python":
            execute(block, PAGE, names)
    return names


def test_the_page_from_start_to_finish(session: dict[str, Any], desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (desk / "runs/clip/report.html").stat().st_size > 10_000
    assert {r.status for r in session["records"]} == {"ok"}
    for attack, *told in table():
        cells = (("none", "unaware"), ("clip", "unaware"), ("clip", "adaptive"))
        measured = [session["decibels"](defense, attack, attacker) for defense, attacker in cells]
        assert measured == pytest.approx(told, abs=WITHIN), attack
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main(["list", "defenses"])
    assert shown_listing() in capsys.readouterr().out


def table() -> list[tuple[Any, ...]]:
    """Rows of the page's table: attack and three numbers."""
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    return [(name, *map(float, numbers)) for name, *numbers in rows]


def shown_listing() -> str:
    """What the page says that `gradveil list defenses` prints of the new row."""
    (console,) = (block for block in blocks(PAGE) if block.language == "console")
    return console.text.partition("...\n")[2]
