"""docs/methods/rogs.md does what it says: its commands and its code run, and the table has the defaults."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

from gradveil.attacks.rogs import rogs
from gradveil.cli import main

PAGE = ROOT / "docs/methods/rogs.md"


@pytest.mark.slow
def test_the_page_from_start_to_finish(desk: Path) -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        if block.file is not None:
            (desk / block.file).write_text(block.text)
        elif block.language == "python":
            execute(block, PAGE, session)
        for arguments in block.commands:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*arguments, "--device", "cpu", "--quiet"])
    assert {"gan.png", "gan.safetensors", "own.py", "run"} <= {path.name for path in desk.iterdir()}
    assert session["attack"].steps == 50


def test_the_table_has_every_option_and_its_default() -> None:
    text = PAGE.read_text()
    rows = dict(re.findall(r"^\| (`[\w`, ]+`) \|([^|]*)\|", text, re.MULTILINE))
    report = {
        name: value.strip().strip("`")
        for names, values in rows.items()
        for name, value in zip(re.findall(r"\w+", names), values.split(", "), strict=False)
    }
    for name, parameter in inspect.signature(rogs).parameters.items():
        default = parameter.default
        expected = str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")
        assert report[name] == expected, name
