"""docs/configuration.md against the code: keys, defaults, options and a line of a journal."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import fields
from typing import Any

from blocks import ROOT, blocks
from typer.main import get_command

from gradveil.cli import app
from gradveil.config import AuditConfig, ScenarioConfig, from_tables
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


def test_the_line_of_a_journal_is_one() -> None:
    (shown,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    record = decode(json.dumps(shown, separators=(",", ":")).encode())  # the checksum holds
    assert record.status == "ok"
    report = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", TEXT, re.MULTILINE)))
    assert {*names(Record), "crc"} <= set(report)
