"""docs/methods/loda.md does what it says: its commands and its code run, and its tables name what there is."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.cli import main
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.loda import Loda

PAGE = ROOT / "docs/methods/loda.md"
TEXT = PAGE.read_text()


def test_the_page_from_start_to_finish(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audited: list[Any] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(desk / "cache"))
    monkeypatch.setattr(sys.modules["gradveil.cli.audit"], "run_and_report", lambda config, *_: audited.append(config))
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, PAGE, session)
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*arguments, "--device", "cpu"])
    report = re.findall(
        r"^\| `([\w.-]+)` \| ", TEXT.partition("`encoded/` then holds")[2].partition("Run the same")[0], re.M
    )
    assert {path.name for path in (desk / "encoded").iterdir()} == set(report)
    assert [list(config.defense) for config in audited] == [["none", "loda"]]


def test_every_option_is_told() -> None:
    table = TEXT.partition("| option | default |")[2].partition("\n\n")[0]
    report = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)))
    assert set(report) == {field.name for field in fields(Loda)}


def test_the_presets_are_those_of_the_table() -> None:
    weights = dict(re.findall(r"^\| `(loda-\d)` \| [^|]+ \| (\d+) \|", TEXT, re.MULTILINE))
    assert weights == {name: f"{DEFENSES[name]().c:g}" for name in ("loda-1", "loda-2", "loda-3")}
