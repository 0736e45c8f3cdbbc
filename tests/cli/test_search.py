"""`gradveil search` as a user gives it: help at once, one line for what is wrong, killed and given again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from gradveil.cli import app, main
from gradveil.search.settings import SearchSettings

SMALL = [
    "search", "--data-option", "count=64", "--data-option", "size=16", "--candidates", "8", "--top", "3",
    "--images", "8", "--rounds", "1", "--semi-epochs", "1", "--threshold", "100%", "--confirm", "0", "--device", "cpu",
]  # fmt: skip


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with a cache of its own outside."""
    here = tmp_path / "desk"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return here


def given(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def test_it_prints_a_table_and_writes_a_file_that_an_audit_takes(desk: Path, capsys: pytest.CaptureFixture) -> None:
    assert given(*SMALL, "--workers", "0") == 0
    said = capsys.readouterr().out
    document = json.loads((desk / "policy.json").read_text())
    assert said.startswith("policy  ")
    assert f"hybrid: {document['hybrid']}" in said
    for one in document["policies"]:
        assert one["policy"] in said
    assert [path.name for path in desk.iterdir() if path.is_file()] == ["policy.json"]
    (run,) = (desk / "runs").iterdir()
    assert {path.name for path in run.iterdir()} == {
        "config.toml",
        "provenance.json",
        "journal.jsonl",
        "images",
        "report.html",
        "seal.json",
    }
    assert given("verify", str(run)) == 0
    before = (desk / "policy.json").read_bytes()
    assert given(*SMALL, "--workers", "1", "--quiet") == 0  # the same search: all is there already
    assert (desk / "policy.json").read_bytes() == before
    assert list((desk / "runs").iterdir()) == [run]
    assert given("verify", str(run)) == 0
    (run / "journal.jsonl").write_bytes(b"")
    assert given("verify", str(run)) == 2


@pytest.mark.more
def test_killed_and_given_again_it_ends_with_the_same_file(desk: Path, tmp_path: Path) -> None:
    """A real process, killed without warning after its first results."""
    command = [sys.executable, "-m", "gradveil", *SMALL, "--candidates", "24", "--workers", "1", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([*command, "--folder", "runs/killed"], env=environment)
    journal = desk / "runs/killed/journal.jsonl"
    while not journal.exists() or journal.stat().st_size < 3000:
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (desk / "policy.json").exists()
    assert given(*command[3:], "--folder", "runs/killed") == 0
    assert given(*command[3:], "--folder", "runs/whole", "--out", "whole.json") == 0
    assert (desk / "policy.json").read_bytes() == (desk / "whole.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--library", "other.toml"], "--library: other.toml: cannot be read"),
        (["--top", "9"], "--top: must be at most 8"),
        (["--images", "64"], "--images: 64 pictures to score"),
        (["--length", "0"], "--length: must be between 1"),
        (["--workers", "-1"], "--workers: must be between 0"),
        (["--ray", "auto", "--workers", "2"], "--workers: a Ray cluster has workers"),
        (["--device", "tpu"], "--device: unknown name 'tpu'"),
        (["--precision", "half"], "--precision: unknown name 'half'"),
        (["--out", "."], "--out: .: not a file"),
        (["--folder", "f", "--out", "f/policy.json"], "--out: f/policy.json lies in the folder"),
        (["--candidates", "many"], "--candidates: 'many' is not a valid integer, see gradveil search --help"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    arguments: list[str], said: str, desk: Path, capsys: pytest.CaptureFixture
) -> None:
    assert given(*SMALL, "--quiet", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
    assert list(desk.iterdir()) == []


def test_a_file_of_somebody_else_is_not_overwritten(desk: Path, capsys: pytest.CaptureFixture) -> None:
    for content in ("[]", "not JSON", '{"settings": {"candidates": 7}}'):
        (desk / "policy.json").write_text(content)
        assert given(*SMALL) == 2
        assert "exists and is not of this search" in capsys.readouterr().err
        assert (desk / "policy.json").read_text() == content


def test_help_does_not_import_torch() -> None:
    code = "import sys\nfrom gradveil.cli import main\ntry: main(['search', '--help'])\nexcept SystemExit: pass\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.rstrip().endswith("False")


def test_every_setting_has_an_option_and_its_default_is_told() -> None:
    command: Any = get_command(app)
    options = {name: p for p in command.commands["search"].params for name in p.opts}
    defaults = {f"--{name.replace('_', '-')}": value for name, value in asdict(SearchSettings()).items()}
    assert set(defaults) - {"--data-options"} <= set(options)
    numbers = {name: value for name, value in defaults.items() if isinstance(value, int | float) and name in options}
    assert len(numbers) > 10
    for name, value in numbers.items():
        assert f"default {value}" in options[name].help


def test_the_page_has_every_option_and_its_python_runs(desk: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/search.md").read_text()
    command: Any = get_command(app)
    there = {name for p in command.commands["search"].params for name in p.opts if name.startswith("--")} - {"--help"}
    listed = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `--"))
    assert set(re.findall(r"`(--[a-z-]+)`", listed)) == there
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    session: dict[str, Any] = {}
    exec(python.replace("candidates=20, images=8", "candidates=6, images=2, rounds=1, semi_epochs=1"), session)
    assert session["outcome"].hybrid
