"""A journal that was torn at its end or changed in its middle: never a wrong record."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from children import records, table
from toys import Noise, audit

from gradveil.audit.audit import Audit, run_audit
from gradveil.core.errors import GradveilError
from gradveil.experiment import journal
from gradveil.experiment.journal import Journal, encode

LAST = 5


def small() -> Audit:
    return audit({"a": Noise(), "b": Noise()}, clients=4, controls=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a real run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_audit(small(), folder)
    return folder


def starts_of(content: bytes) -> list[int]:
    """Where each record begins, and where the last one ends."""
    return [0, *(match.end() for match in re.finditer(b"\n", content))]


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)


@pytest.mark.more
def test_cut_at_every_byte_of_the_last_records_no_record_is_wrong(whole: Path, tmp_path: Path) -> None:
    expected = records(whole)[-LAST - 2 :]
    content = b"".join(map(encode, expected))
    starts = starts_of(content)
    torn = tmp_path / "journal.jsonl"
    for cut in range(starts[-1 - LAST], len(content)):
        torn.write_bytes(content[:cut])
        kept = sum(end <= cut for end in starts[1:])
        with Journal(torn) as opened:
            assert opened.records == expected[:kept]
            opened.append(expected[kept])
        assert torn.read_bytes() == content[: starts[kept + 1]]
        with Journal(torn) as again:
            assert again.records == expected[: kept + 1]


def test_a_run_that_was_torn_goes_on_to_the_same_table(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_audit(small(), folder)
    path = folder / "journal.jsonl"
    content = path.read_bytes()
    starts, rng = starts_of(content), random.Random(0)
    for _ in range(25):
        path.write_bytes(content[: rng.randrange(starts[-1 - LAST], len(content))])
        run_audit(small(), folder)
        assert table(folder) == table(whole)


def test_a_flip_in_the_middle_is_refused_with_name_and_offset_and_nothing_is_touched(
    whole: Path, tmp_path: Path
) -> None:
    content = (whole / "journal.jsonl").read_bytes()
    starts = starts_of(content)
    path, rng = tmp_path / "journal.jsonl", random.Random(1)
    for _ in range(100):
        at = rng.randrange(starts[-2] - 1)  # the end of the last but one would make one torn tail of two records
        bad = bytearray(content)
        bad[at] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        begins = max(start for start in starts if start <= at)
        for reader in (Journal, journal.read):
            with pytest.raises(GradveilError, match=rf"journal\.jsonl: bad record at byte {begins},.*restore the file"):
                reader(path)
        assert path.read_bytes() == bytes(bad)


@pytest.mark.more
def test_a_flip_at_the_end_costs_that_record_and_is_never_believed(whole: Path, tmp_path: Path) -> None:
    expected = records(whole)[-LAST:]
    content = b"".join(map(encode, expected))
    starts = starts_of(content)
    path = tmp_path / "journal.jsonl"
    for at in range(starts[-2] - 1, len(content)):
        for bit in (0, 3, 7):
            bad = bytearray(content)
            bad[at] ^= 1 << bit
            path.write_bytes(bad)
            try:
                assert journal.read(path) == expected[: -2 if at < starts[-2] else -1]
            except GradveilError:  # the flip has made an end of line: two lines of which the first is bad
                assert bad[at] == ord("\n")


def test_a_run_in_a_folder_whose_journal_has_rotted_changes_nothing(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_audit(small(), folder)
    path = folder / "journal.jsonl"
    bad = bytearray(path.read_bytes())
    bad[len(bad) // 2] ^= 1
    path.write_bytes(bad)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(GradveilError, match="bad record at byte"):
        run_audit(small(), folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_what_is_torn_is_as_long_as_what_encode_writes(whole: Path) -> None:
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert lines == [encode(record) for record in records(whole)]
