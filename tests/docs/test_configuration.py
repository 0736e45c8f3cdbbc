"""docs/configuration.md against the code: keys, defaults, options, budgets and a line of a journal."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from typing import Any

import pytest
from blocks import ROOT, blocks
from typer.main import get_command

from gradveil.attacks import ATTACKS
from gradveil.cli import app
from gradveil.config import AuditConfig, ScenarioConfig, from_tables
from gradveil.config.effort import BUDGETS, spend
from gradveil.config.resolve import resolve
from gradveil.experiment.journal import decode
from gradveil.experiment.record import Record

PAGE = ROOT / "docs/configuration.md"
TEXT = PAGE.read_text()
FULL, TWICE = (tomllib.loads(block.text) for block in blocks(PAGE) if block.language == "toml")


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_the_file_has_every_key_and_its_default() -> None:
    assert set(FULL) == names(AuditConfig) - {"declared"}  # which is read off the file itself
    assert set(FULL["scenario"]) == names(ScenarioConfig)
    assert from_tables(FULL) == resolve(AuditConfig())


def test_one_method_can_be_there_twice() -> None:
    config = from_tables(TWICE)
    assert [choice.name for choice in config.defense.values()] == ["gaussian", "gaussian", "stack"]


def test_the_options_are_those_of_the_command() -> None:
    command: Any = get_command(app)
    there = {option for parameter in command.commands["audit"].params for option in parameter.opts}
    there = {option for option in there if option.startswith("--")} - {"--help"}
    assert set(re.findall(r"^\| `(--[\w-]+)", TEXT, re.MULTILINE)) == there


@pytest.mark.parametrize("name", ATTACKS)
def test_the_budgets(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| (.*) \|$", TEXT, re.MULTILINE)
    assert row is not None
    assert row[1].split(" | ") == [effort(name, budget) for budget in BUDGETS]


def effort(name: str, budget: Any) -> str:
    attack: Any = ATTACKS[name](**spend(budget, ATTACKS[name], {}))
    if name == "autoattack":
        return "its stages"
    return f"{attack.steps:,} x {attack.restarts}" if hasattr(attack, "steps") else "closed form"


def test_the_line_of_a_journal_is_one() -> None:
    (shown,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    record = decode(json.dumps(shown, separators=(",", ":")).encode())  # the checksum holds
    assert record.status == "ok"
    told = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", TEXT, re.MULTILINE)))
    assert {*names(Record), "crc"} <= set(told)
