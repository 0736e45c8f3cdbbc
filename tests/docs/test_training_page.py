"""docs/training.md does what it says: its code and its commands run, and it names every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute
from typer.main import get_command

from gradveil.cli import app, main

PAGE = ROOT / "docs/training.md"
TEXT = PAGE.read_text()
FEWER = ["--data-option", "limit=80", "--device", "cpu", "--quiet", "--rounds", "2"]


def test_the_page_from_start_to_finish(desk: Path) -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, PAGE, session)
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*arguments, *FEWER])
    there = {path.name for path in (desk / "runs/pruned").iterdir()}
    report = TEXT.partition("## The folder")[2].partition("Run the same command")[0]
    assert there == {name.split("/")[0] for name in re.findall(r"`([\w./-]+)`", report) if "." in name}


def test_every_option_is_told() -> None:
    command: Any = get_command(app)
    there = {option for parameter in command.commands["train"].params for option in parameter.opts}
    table = TEXT.partition("| option | what |")[2].partition("\n\n")[0]
    report = set(re.findall(r"`(--[\w-]+)`", " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))))
    assert report == there - {"--help"}
