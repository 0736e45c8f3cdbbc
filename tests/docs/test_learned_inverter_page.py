"""docs/methods/learned-inverter.md: its commands run, and its tables have the defaults."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from blocks import ROOT, blocks
from typer.main import get_command

from gradveil.attacks.learned_inverter import STEPS, learned_inverter
from gradveil.cli import app, main
from gradveil.core.choice import parse_value

PAGE = ROOT / "docs/methods/learned-inverter.md"


def test_the_commands_run(desk: Path) -> None:
    for block in blocks(PAGE):
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*arguments, "--device", "cpu", "--quiet"])
    assert {"plain.safetensors", "run"} <= {path.name for path in desk.iterdir()}


def table_of(heading: str) -> dict[str, str]:
    """Option to default, of the table under a heading."""
    text = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[-\w`, ]+`) \|\s*([^|]*?)\s*\|", text, re.MULTILINE)
    each = [
        (re.findall(r"[-\w]+", names), re.findall(r"\[[^]]*\]|[^,\s]+", values.replace("`", "")))
        for names, values in rows
    ]
    return {name: value for names, values in each for name, value in zip(names, values or [""], strict=True)}


def test_the_tables_have_the_defaults() -> None:
    report, options = table_of("Options of the attack"), inspect.signature(learned_inverter).parameters
    assert set(report) == set(options)
    plain = {name: option.default for name, option in options.items()} | {"steps": STEPS}
    for name, value in plain.items():
        assert parse_value(report[name]) == (list(value) if isinstance(value, tuple) else value), name
    command = get_command(app).commands["train-inverter"]  # type: ignore[attr-defined]
    defaults = {parameter.opts[0]: parameter.default for parameter in command.params}
    for name, text in table_of("Options of the training").items():
        assert (None if text == "none" else parse_value(text)) == defaults[name], name
