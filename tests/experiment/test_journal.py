from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path

import pytest

from gradveil.core.errors import GradveilError
from gradveil.experiment import journal
from gradveil.experiment.journal import Journal
from gradveil.experiment.record import Record


def record(number: int, **changes) -> Record:
    plain = {"key": f"s/none/a/unaware/c/{number}", "status": "ok", "scenario": "s", "defense": "none", "attack": "a"}
    more = {"attacker": "unaware", "client": 'c\u00e9\n"x"', "example": number, "seed": 2**62 + number}
    scores = {"psnr": 0.1 + number / 3}
    rest = {"seconds": 1e-9, "backend": "loop", "scores": scores, "loss": 1 / 3, "flags": ("tf32",)}
    return Record(**{**plain, **more, **rest, **changes})


RECORDS = [record(number) for number in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as file:
        for one in RECORDS:
            file.append(one)
    return path


def test_what_is_written_is_read_back_bit_for_bit(path: Path) -> None:
    assert journal.read(path) == RECORDS


def test_a_line_is_plain_json_with_a_checksum(path: Path) -> None:
    line = json.loads(path.read_text().splitlines()[2])
    assert line["key"] == RECORDS[2].key
    assert line["scores"] == RECORDS[2].scores
    assert isinstance(line["crc"], int)


def test_only_its_owner_can_read_it(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_cut_anywhere_no_record_is_wrong_and_the_rest_can_be_appended(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(ends[2], len(content)):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends)
        assert journal.read(torn) == RECORDS[:whole]
        assert torn.stat().st_size == cut, "reading must not change the file"
        with Journal(torn) as file:
            assert file.records == RECORDS[:whole]
            for one in RECORDS[whole:]:
                file.append(one)
        assert torn.read_bytes() == content


def test_a_changed_byte_in_the_middle_is_refused_with_its_line_and_nothing_is_touched(path: Path) -> None:
    content = path.read_bytes()
    start = content.index(b"\n") + 1
    end = content.index(b"\n", start)
    rng = random.Random(0)
    for _ in range(100):
        at = rng.randrange(start, end)
        bad = bytearray(content)
        bad[at] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(bad))
        with pytest.raises(GradveilError, match=rf"journal\.jsonl: bad record at byte {start}\b"):
            Journal(path)
        assert path.read_bytes() == bytes(bad)


def test_two_writers_are_one_too_many(path: Path) -> None:
    with Journal(path), pytest.raises(GradveilError, match="another run is writing here"):
        Journal(path)
    with Journal(path) as again:  # the lock is gone with its holder
        assert len(again.records) == 5


def test_what_is_not_json_is_refused(path: Path) -> None:
    with Journal(path) as file, pytest.raises(ValueError, match="not JSON compliant"):
        file.append(record(9, scores={"psnr": float("nan")}))
    assert journal.read(path) == RECORDS


def test_no_journal_has_no_records(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "journal.jsonl") == []


def test_a_record_is_on_disk_before_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    with Journal(path) as file:
        before = path.stat().st_size
        file.append(record(7))
        assert synced == [path.stat().st_size]
        assert synced[0] > before


def test_records_that_end_together_wait_for_the_disk_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    more = [record(number) for number in range(5, 8)]
    with Journal(path) as file:
        file.extend(more)
        assert file.records == [*RECORDS, *more]
    assert synced == [path.stat().st_size]
    assert journal.read(path) == [*RECORDS, *more]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"example": "0"}, "example: another type"),
        ({"seed": True}, "seed: another type"),
        ({"loss": "low"}, "loss: another type"),
        ({"status": 1}, "status: another type"),
        ({"flags": (1,)}, "flags or notes: another type"),
        ({"scores": {"psnr": "high"}}, "not numbers"),
        ({"scores": {"psnr": True}}, "not numbers"),
    ],
)
def test_a_right_checksum_over_wrong_types_is_refused(changes: dict, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(journal.encode(record(0, **changes)) + journal.encode(record(1)))
    with pytest.raises(journal.JournalError, match=expected):
        journal.read(path)


def test_a_line_that_holds_no_record_is_refused() -> None:
    body = b'[1,"crc":'
    with pytest.raises(ValueError, match="checksum"):
        journal.decode(body + b"0}")
    with pytest.raises(ValueError, match="checksum"):
        journal.decode(b'{"a":1}')


def test_a_pipe_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(journal.JournalError, match="not a file"):
        journal.read(tmp_path / "journal.jsonl")


def test_a_forked_child_does_not_hold_the_lock(path: Path) -> None:
    with Journal(path) as one:
        child = os.fork()
        if child == 0:
            os._exit(0 if one.file.closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not one.file.closed


def test_what_a_fork_inherits_is_closed_there(path: Path) -> None:
    with Journal(path) as one:
        journal._leave_to_parent()
        assert one.file.closed
