from __future__ import annotations

import csv
import io
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradveil.audit.table import as_csv, columns, rows
from gradveil.cli import main
from gradveil.cli.table import write_new
from gradveil.core.errors import ConfigError
from gradveil.experiment.journal import Journal
from gradveil.experiment.record import Record

FIXED = ["key", "status", "scenario", "defense", "attack", "attacker", "control", "client", "example", "seed", "loss",
         "blank"]  # fmt: skip


def record(number: int, **changes: Any) -> Record:
    plain = Record(
        key=f"digits/none/linear/unaware/c{number:04}/0",
        status="ok",
        scenario="digits",
        defense="none",
        attack="linear",
        attacker="unaware",
        client=f"c{number:04}",
        example=0,
        seed=number,
        seconds=0.5,
        backend="vmap",
        scores={"psnr": 20 + number / 3, "lpips": 1e-07},
        loss=0.1 + 0.2,
        flags=("tf32", "labels-inferred"),
        notes=("a note",),
    )
    return replace(plain, **changes)


RECORDS = [
    record(0),
    record(1, scores={"psnr": -3.5, "ssim": 0.25}, loss=None, flags=()),
    record(2, status="failed", scores={}, loss=None, reason='ValueError: "a, b"'),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with the caller's umask back in place afterwards."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        for one in reversed(RECORDS):
            journal.append(one)
    return folder


def parsed(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def test_columns() -> None:
    assert columns(RECORDS) == [*FIXED, "lpips", "psnr", "ssim", "flags", "reason"]
    assert as_csv(RECORDS).splitlines()[0].split(",") == columns(RECORDS)
    assert [len(row) for row in rows(RECORDS)] == [len(columns(RECORDS))] * 3


def test_every_cell_comes_back() -> None:
    first, second, third = parsed(as_csv(RECORDS))
    assert [first[name] for name in ("key", "client", "example", "seed", "control")] == [
        RECORDS[0].key,
        "c0000",
        "0",
        "0",
        RECORDS[0].control,
    ]
    assert {name: float(first[name]) for name in ("psnr", "lpips")} == RECORDS[0].scores
    assert (first["loss"], first["ssim"]) == ("0.30000000000000004", "")
    assert first["flags"].split(";") == list(RECORDS[0].flags)
    assert (second["psnr"], second["loss"], second["flags"]) == ("-3.5", "", "")  # a number is no formula
    assert (third["status"], third["psnr"], third["reason"]) == ("failed", "", 'ValueError: "a, b"')


def test_one_audit_one_table_however_it_was_run() -> None:
    whole = as_csv(RECORDS)
    for seed in range(5):
        elsewhere = [
            replace(r, seconds=seed, backend="loop", notes=("fell back",), images=f"{seed}.safetensors")
            for r in RECORDS
        ]
        random.Random(seed).shuffle(elsewhere)
        assert as_csv(elsewhere) == whole
    assert [row["key"] for row in parsed(whole)] == sorted(r.key for r in RECORDS)


def test_no_record_is_a_table_without_lines() -> None:
    assert as_csv([]) == ",".join([*FIXED, "flags", "reason"]) + "\n"


HOSTILE = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-1+1|cmd",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\x00@x",
    "\ttab",
    "\x1b[2Jname",
    'a"b,c;d',
    "two\nlines\r\nand\ttab",
    "right\u202eto left",
    "lone \udc80 byte",
    "line\u2028end",
    "",
    "Ünïcode 絵",
]


@pytest.mark.parametrize("field", ["key", "scenario", "defense", "attack", "client", "reason"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_on_one_line(field: str, name: str) -> None:
    text = as_csv([record(0, **{field: name})])
    assert text.count("\n") == 2
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    text.encode()
    (row,) = parsed(text)
    cell = row[field]
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    assert cell.removeprefix("'") == "".join(c if c.isprintable() else " " for c in name)
    assert cell.startswith("'") == (name.startswith(("\t", "\r")) or name.strip(" \n\0")[:1] in {"=", "+", "-", "@"})


def test_flags_and_score_names_are_text_too() -> None:
    (row,) = parsed(as_csv([record(0, flags=("=1", "b"), scores={"=psnr": 1.0})]))
    assert row["flags"] == "'=1;b"
    assert row["'=psnr"] == "1.0"


def test_printed_and_written_are_the_same_bytes(run: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert code("table", "run") == 0
    printed = capsysbinary.readouterr().out
    assert printed == as_csv(RECORDS).encode()
    assert code("table", "run", "--out", "scores.csv") == 0
    assert capsysbinary.readouterr() == (b"", b"")
    assert Path("scores.csv").read_bytes() == printed
    assert stat.S_IMODE(Path("scores.csv").stat().st_mode) == 0o600


def test_a_file_that_is_there_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.csv").write_text("mine")
    Path("dangling.csv").symlink_to("nowhere")
    for name in ("mine.csv", "dangling.csv"):
        assert code("table", "run", "--out", name) == 2
        assert capsys.readouterr().err == f"error: --out: {name} exists, choose another name\n"
    assert Path("mine.csv").read_text() == "mine"
    assert not Path("nowhere").exists()


def test_the_folder_of_the_run_is_left_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("table", "run", "--out", "run/scores.csv") == 2
    assert "lies in the folder of the run" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == ["journal.jsonl"]


def test_bad_input_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, message in {
        ("nowhere",): "nowhere: no such folder, give the folder of a run",
        ("empty",): "empty: no finished trial in journal.jsonl, give the folder of a run",
        ("run", "--out", "no/such.csv"): "--out: no/such.csv cannot be made, No such file or directory",
    }.items():
        assert code("table", *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert message in err


def test_half_a_table_is_none(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"scores\.csv cannot be written, File too large"):
            write_new(tmp_path / "scores.csv", b"x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "scores.csv").exists()


def test_help_has_examples_and_no_torch_is_loaded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("table", "--help") == 0
    assert "Examples" in capsys.readouterr().out
    probe = "import sys, gradveil.cli as c; c._code(['table', 'run']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True).returncode == 0
