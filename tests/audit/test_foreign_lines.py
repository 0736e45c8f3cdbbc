"""Lines of another run in a journal, or a run's own under other names, are no trials of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.experiment import journal
from gradveil.experiment.record import Record

Change = Callable[[Record], Record]


def run_with(folder: Path, seed: int) -> list[Record]:
    run_audit(replace(audit({"a": Noise()}, controls=True), seed=seed), folder)
    return journal.read(folder / "journal.jsonl")


def write(folder: Path, records: list[Record]) -> None:
    (folder / "journal.jsonl").write_bytes(b"".join(map(journal.encode, records)))


def test_every_trial_of_a_run_is_its_own(tmp_path: Path) -> None:
    records = run_with(tmp_path / "run", 3)
    assert {record.control for record in records} >= {"", "prior", "another"}
    assert list(read_run(tmp_path / "run").records) == records


def test_lines_of_a_run_of_another_seed_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, other = run_with(tmp_path / "own", 0), run_with(tmp_path / "other", 1)
    by_key = {record.key: record for record in other}
    assert by_key.keys() == {record.key for record in own}
    write(tmp_path / "own", [by_key[r.key] if r.client == "c0001" else r for r in own])
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "own")])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("c0001/0: is not a trial of this run, whose `seed` is 0, restore the file")


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, defense="none" if r.defense != "none" else "d"),
        lambda r: replace(r, client="c0002" if r.client != "c0002" else "c0000"),
        lambda r: replace(r, attack="b"),
        lambda r: replace(r, scenario="another"),
    ],
    ids=["defense", "client", "attack", "scenario"],
)
def test_a_trial_under_another_name_is_refused(change: Change, tmp_path: Path) -> None:
    records = run_with(tmp_path / "run", 0)
    write(tmp_path / "run", [change(records[0]), *records[1:]])
    with pytest.raises(ConfigError, match="is not a trial of this run"):
        read_run(tmp_path / "run")
