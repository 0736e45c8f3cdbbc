"""docs/methods/ats.md does what it says: its code runs, its commands are understood, and its counts are right."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.cli import main
from gradveil.transforms import LIBRARIES, Library, Policy, library_of

PAGE = ROOT / "docs/methods/ats.md"
TEXT = PAGE.read_text()


def test_the_page_from_start_to_finish(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audited: list[Any] = []
    monkeypatch.setattr(sys.modules["gradveil.cli.audit"], "run_and_report", lambda config, *_: audited.append(config))
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.file:
            (desk / block.file).write_text(block.text)
        elif block.language == "python":
            execute(block, PAGE, session)
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main(arguments)
    assert (desk / "transforms.png").exists()
    assert [list(config.defense) for config in audited] == [["none", "ats", "random-policy"], ["none", "ats"]]
    assert audited[1].defense["ats"].options["augment"] is True
    assert library_of("own.toml").spec == ("translateX9", "brightness5")


def numbers(row: str) -> set[int]:
    return {int(number) for number in row.split(",")}


def test_the_groups_of_the_same_function() -> None:
    alike = LIBRARIES["ats-code"].alike
    report = re.findall(r"^\| `\w+` \| ([\d, ]+) \|$", TEXT, re.MULTILINE)
    groups = [{place for place, one in enumerate(alike) if one == first} for first in set(alike) - {None}]
    assert sorted(map(sorted, map(numbers, report))) == sorted(sorted(group) for group in groups if len(group) > 1)
    assert sum(len(numbers(row)) - 1 for row in report) == 21


def test_the_places_where_the_libraries_differ() -> None:
    report = re.findall(r"^\| (\d+) \| `(\w+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
    code, paper = (LIBRARIES[name].entries for name in ("ats-code", "ats-paper"))
    differ = [(str(k), str(a), str(b)) for k, (a, b) in enumerate(zip(code, paper, strict=True)) if a != b]
    assert report == differ


def test_the_number_of_different_policies() -> None:
    functions = len(set(LIBRARIES["ats-code"].alike) - {None})
    assert f"{sum(functions**k for k in (1, 2, 3)):,} different ones" in TEXT
    assert f"{sum(50**k for k in (1, 2, 3)):,} policies" in TEXT


def test_every_published_policy_can_be_read() -> None:
    table = TEXT.partition("| published for |")[2].partition("\n\n")[0]
    policies = re.findall(r"`([\d+-]+)`", table)
    assert len(policies) == 7
    library: Library = LIBRARIES["ats-code"]
    assert all(str(Policy.parse(text, library)) == text for text in policies)
