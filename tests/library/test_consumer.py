"""The library as a strict checker of types sees it: right calls pass, wrong ones are errors, and nothing is `Any`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gradveil

HERE = Path(__file__).parent
CONSUMER, REVEAL = HERE / "consumer.py", "reveal.py"
BESIDE = Path(sys.executable).parent / "pyright"
NAMES = [name for name in gradveil.__all__ if name != "__version__"]

pytestmark = pytest.mark.skipif(
    not BESIDE.exists() and shutil.which("pyright") is None,
    reason="pyright is not installed: pip install gradveil[dev]",
)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str]]:
    """File, line and message of everything that pyright, strict, says of the consumer and of all names."""
    folder = tmp_path_factory.mktemp("consumer")
    shutil.copy(CONSUMER, folder)
    (folder / REVEAL).write_text("import gradveil\n" + "".join(f"reveal_type(gradveil.{name})\n" for name in NAMES))
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(HERE.parents[1] / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [str(BESIDE) if BESIDE.exists() else "pyright", "--outputjson", "--pythonpath", sys.executable]
    answer = subprocess.run([*command, "-p", str(folder)], capture_output=True, text=True, check=False)
    found = json.loads(answer.stdout)["generalDiagnostics"]
    return [(Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"]) for one in found]


def test_wrong_lines_are_errors_and_right_ones_are_none(findings: list[tuple[str, int, str]]) -> None:
    lines = enumerate(CONSUMER.read_text().splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("  # error")}
    errors = {line: message for file, line, message in findings if file == CONSUMER.name}
    assert len(wrong) > 5
    assert {number: errors.get(number) for number in {*errors} ^ wrong} == {}


def test_no_name_is_any(findings: list[tuple[str, int, str]]) -> None:
    types = {NAMES[line - 2]: message for file, line, message in findings if file == REVEAL}
    assert {*types} == {*NAMES}
    assert not [text for text in types.values() if re.search(r'is "(Any|Unknown)"|-> (Any|Unknown)"', text)]
