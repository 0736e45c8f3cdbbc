"""The checks of the page count the cells whose updates the truth explains, and name the others."""

from __future__ import annotations

from pathlib import Path

from synthetic import write_run

from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.audit.verdict.write import to_json
from gradveil.experiment import journal
from gradveil.report.build import write_report

SOUND = {"truth": 1.0, "reconstruction": 0.9, "replay": 1.0}
SWAPPED = {"truth": 0.31, "reconstruction": 0.97, "replay": -0.4}


def with_numbers(folder: Path, sound: bool) -> Path:
    """A run whose defended cells explain their updates, or another client's."""
    path = folder / "journal.jsonl"
    records = journal.read(path)
    for record in records:
        record.explained.update(SOUND if sound or record.defense == "none" else SWAPPED)
    path.write_bytes(b"".join(map(journal.encode, records)))
    return folder


def test_sound_cells_are_counted_in_one_line(tmp_path: Path):
    run = read_run(with_numbers(write_run(tmp_path / "run"), sound=True))
    verdict = judge(run)
    assert verdict.oracles
    assert all(one.passed for one in verdict.oracles)
    write_report(run.folder)
    page = (run.folder / "report.html").read_text()
    count = len(verdict.oracles)
    assert f"Passed in {count} of {count} cells." in page
    assert "are not what their clients compute" not in page


def test_a_cell_that_failed_is_a_row_with_both_numbers(tmp_path: Path):
    run = read_run(with_numbers(write_run(tmp_path / "run"), sound=False))
    failed = [one for one in judge(run).oracles if not one.passed]
    assert failed
    write_report(run.folder)
    page = (run.folder / "report.html").read_text()
    assert "are not what their clients compute; the true pictures explain 31 % of the updates." in page
    assert ">31 %<" in page
    assert ">97 %<" in page


def test_a_machine_reads_the_same(tmp_path: Path):
    run = read_run(with_numbers(write_run(tmp_path / "run"), sound=False))
    evidence = [one for finding in to_json(run, judge(run))["findings"] for one in finding["evidence"]]
    assert {one["oracle"]["failure"] for one in evidence if one["oracle"]} == {"", "received"}
