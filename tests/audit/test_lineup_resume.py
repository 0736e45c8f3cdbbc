"""A line-up that was interrupted is held again whole, and nobody sees from the records that it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import read_run
from gradveil.audit.table import as_csv
from gradveil.audit.verdict.completeness import count_missing
from gradveil.audit.verdict.leak import Baselines
from gradveil.core.compute import Compute
from gradveil.experiment.progress import Silent
from gradveil.experiment.record import Record


class Pairs(Compute):
    """Two clients to a shard."""

    @property
    def shard(self) -> int:
        return 2


class Ends(Silent):
    """Ctrl-C after so many shards; keeps what it was told."""

    def __init__(self, after: int = 1000) -> None:
        self.after, self.shards, self.started = after, 0, []

    def begin(self, cells: int) -> None:
        self.shards = cells

    def start(self, cell: str, trials: int) -> None:
        self.started.append(cell)

    def done(self, trials: int, failed: int) -> None:
        self.after -= 1
        if not self.after:
            raise KeyboardInterrupt


def asked(**changes) -> Audit:
    return audit({"noise": Noise()}, clients=5, examples=2, **{"lineup": "auto", **changes})


def records(folder: Path) -> list[Record]:
    return [replace(record, seconds=0.0) for record in read_run(folder).records]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_audit(asked(), folder, Pairs())
    return folder


def test_line_ups_come_first_and_the_progress_shows_them(tmp_path: Path) -> None:
    shown = Ends()
    run_audit(asked(), tmp_path / "run", Pairs(), shown)
    assert shown.shards == len(shown.started) == 12
    assert shown.started[:6] == 3 * ["toy / none / line-up"] + 3 * ["toy / gaussian / line-up"]
    assert all("noise" in cell for cell in shown.started[6:])


@pytest.mark.parametrize("after", [1, 4, 7])
def test_an_interrupted_run_goes_on_to_the_same_records(after: int, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_audit(asked(), tmp_path / "run", Pairs(), Ends(after))
    before = records(tmp_path / "run")
    assert 0 < len(before) < len(records(whole))
    again = Ends()
    run_audit(asked(), tmp_path / "run", Pairs(), again)
    assert again.shards == 12 - after
    assert records(tmp_path / "run") == records(whole)


def test_a_line_up_that_was_torn_is_held_again_whole(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_audit(asked(), folder, Pairs())
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "journal.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][:50])  # the second of three shards
    (folder / "seal.json").unlink(missing_ok=True)
    again = Ends()
    run_audit(asked(), folder, Pairs(), again)
    assert again.started[0] == "toy / none / line-up"
    assert again.shards == 11
    assert as_csv(records(folder)) == as_csv(records(whole))
    assert len(records(folder)) == len(records(whole))


def test_worker_processes_hold_the_same(whole: Path, tmp_path: Path) -> None:
    run_audit(asked(), tmp_path / "run", Pairs(workers=2))
    assert sorted(records(tmp_path / "run"), key=lambda r: r.key) == sorted(records(whole), key=lambda r: r.key)


def test_a_line_up_that_is_not_there_is_missing(whole: Path) -> None:
    run = read_run(whole)
    baselines = Baselines.of(run.records)
    assert count_missing(run, baselines) == 0
    for lost in (3, 10):
        left = replace(run, records=run.records[lost:])
        assert all(record.control == "lineup" for record in run.records[:lost])
        assert count_missing(left, baselines) == lost


def test_attacks_see_what_they_see_without_it(whole: Path, tmp_path: Path) -> None:
    """The same updates, the same draws: nothing of a line-up reaches an attack."""
    run_audit(asked(lineup=0), tmp_path / "run", Pairs())
    assert records(tmp_path / "run") == [record for record in records(whole) if record.control != "lineup"]
