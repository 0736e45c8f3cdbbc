"""docs/extending.md does what it says, in a copy of the repository; contract tests pass on the rows that it adds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, Block, blocks

PAGE = ROOT / "docs/extending.md"
WITHIN = 1.5  # dB: signed gradients are chaotic, and another machine rounds otherwise
AT_LEAST = {"clip-update": 9, "adam-l2-tensor": 10, "mean-error": 4}  # contract tests of each new row
ROWS = " or ".join(AT_LEAST)
DUMP = """
import json
cells = (("none", "unaware"), ("clip", "unaware"), ("clip", "adaptive"))
errors = [(r.defense, r.attack, r.attacker, r.scenario, r.scores["mean-error"]) for r in records]
decibels_of = {name: [decibels(d, name, a) for d, a in cells] for name in config.attack}
print("RESULT" + json.dumps({"status": [r.status for r in records], "decibels": decibels_of, "errors": errors}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files and the rows of the page."""
    root = tmp_path_factory.mktemp("copy")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for block in blocks(PAGE):
        if block.language == "python" and block.file and "/" in block.file:
            (root / block.file).write_text(block.text)
        if block.language == "diff":
            add_lines(block, root)
    return root


def add_lines(block: Block, root: Path) -> None:
    """Lines with a plus, before the next line without one, or after the one before where none follows."""
    assert block.file
    path, before, waiting = root / block.file, "", []
    text = path.read_text()
    for line in block.text.splitlines()[1:]:
        if line.startswith("+"):
            waiting.append(f"{line[1:]}\n")
            continue
        before = f"{line[1:]}\n"
        assert text.count(before) == 1, before
        text, waiting = text.replace(before, "".join(waiting) + before), []
    path.write_text(text.replace(before, before + "".join(waiting)))


def run_in(copy: Path, *arguments: str, cwd: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{cwd}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def session(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder in which the page was read to its end, and what was measured there."""
    desk = tmp_path_factory.mktemp("desk")
    script = ""
    for block in blocks(PAGE):
        if block.language == "python" and block.file and "/" not in block.file:
            (desk / block.file).write_text(block.text)
        elif block.language == "python" and not block.file:
            script += block.text
    (desk / "reader.py").write_text(script + DUMP)
    printed = run_in(copy, "reader.py", cwd=desk)
    return desk, json.loads(printed.rpartition("RESULT")[2])


def test_the_page_from_start_to_finish(session: tuple[Path, dict[str, Any]], copy: Path) -> None:
    desk, found = session
    assert (desk / "runs/clip/report.html").stat().st_size > 10_000
    assert set(found["status"]) == {"ok"}
    for attack, *numbers in table():
        assert found["decibels"][attack] == pytest.approx(numbers, abs=WITHIN), attack
    assert listing() in run_in(copy, "-m", "gradveil", "list", "defenses", cwd=desk)


def test_the_worst_picture_is_the_one_with_the_lowest_error(session: tuple[Path, dict[str, Any]]) -> None:
    desk, found = session
    verdict = json.loads((desk / "runs/clip/verdict.json").read_text())
    compared = 0
    for cell in verdict["cells"]:
        where = [cell[key] for key in ("defense", "attack", "attacker", "scenario")]
        errors = [error for *place, error in found["errors"] if place == where]
        if errors:  # else a control
            assert max(errors) > min(errors)
            assert cell["metrics"]["mean-error"]["worst"] == min(errors)
            compared += 1
    assert compared >= 8


def test_the_contract_tests_find_the_new_rows(copy: Path) -> None:
    contracts = ["tests/test_contracts.py", "tests/metrics/test_catalogue.py"]
    printed = run_in(copy, "-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider", *contracts, "-k", ROWS, cwd=copy)
    passed = re.findall(r"^PASSED \S+\[.*?(clip-update|adam-l2-tensor|mean-error)", printed, re.MULTILINE)
    for name, fewest in AT_LEAST.items():
        assert passed.count(name) >= fewest, name


def table() -> list[tuple[Any, ...]]:
    """Rows of the page's table: attack and three numbers."""
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    return [(name, *map(float, numbers)) for name, *numbers in rows]


def listing() -> str:
    """What the page says that `gradveil list defenses` prints of the new row."""
    (console,) = (block for block in blocks(PAGE) if block.language == "console")
    return console.text.partition("...\n")[2]
