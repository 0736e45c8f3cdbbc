"""A thousand captures of version 2 that are spoiled, by the command line: one line, exit code 2, nothing written."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest

from gradveil.cli import main

ROOT = Path(__file__).resolve().parents[2]


FEW = pytest.param(0, 60, marks=pytest.mark.more)
MANY = [pytest.param(begin, begin + 235, marks=pytest.mark.slow) for begin in range(60, 1000, 235)]


@pytest.mark.parametrize(("begin", "end"), [FEW, *MANY])
def test_every_spoiled_capture_is_one_line_and_nothing_is_written(
    begin: int, end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "fuzz")
    fuzzer = importlib.import_module("fuzz_capture")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "hostile.safetensors"
    kinds = set()
    for number in range(begin, end):
        rng = random.Random(number)
        kind = rng.choice(fuzzer.KINDS)
        kinds.add(kind)
        file.write_bytes(kind(rng))
        with pytest.raises(SystemExit) as ended:
            main(["audit", "--capture", str(file), "--yes"])
        printed = capsys.readouterr()
        assert ended.value.code == 2, (kind.__name__, number)
        (line,) = printed.err.splitlines()
        assert line.startswith(f"error: {file}: "), (kind.__name__, number, line)
        assert printed.out == ""
        assert list(tmp_path.iterdir()) == [file]
    assert len(kinds) >= 9
