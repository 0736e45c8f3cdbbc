"""A disk that is full: exit code 74, what is kept is told, and the same command finishes as if nothing had been."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from children import forked, records, table
from toys import audit

from gradveil.attacks.linear import linear
from gradveil.cli import main
from gradveil.core.defense import Defense
from gradveil.experiment.seal import find_changes

COMMAND = ("audit", "--data", "digits", "--model", "mlp", "--attack", "linear", "--lineup", "off", "--quiet", "--out")
DISK_FULL = 74


@pytest.fixture(autouse=True)
def toy_for_every_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command line, around an audit of milliseconds."""
    small = audit({"linear": linear()}, {"none": Defense()}, clients=2, controls=True)
    monkeypatch.setattr("gradveil.config.build", lambda config: small)
    before = os.umask(0o077)
    yield
    os.umask(before)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert isinstance(left.value.code, int)
    return left.value.code


def audited(folder: Path) -> int:
    return code(*COMMAND, str(folder))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    assert audited(tmp_path / "whole") == 0
    return tmp_path / "whole"


def failing(plain: Callable, at: int, number: int, calls: list[int]) -> Callable:
    """The n-th call raises, and all that come after it: a disk does not get room by itself."""

    def call(*given, **options):
        calls.append(1)
        if len(calls) >= at:
            raise OSError(number, os.strerror(number))
        return plain(*given, **options)

    return call


def count_of(name: str, folder: Path) -> int:
    """How often a whole audit calls it."""
    calls: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, failing(getattr(os, name), 10**9, errno.ENOSPC, calls))
        assert audited(folder) == 0
    return len(calls)


def kept_of(said: str) -> int:
    found = re.fullmatch(r"error: \S+: .+, (\d+) trials are kept, .+ and give the same command again\n", said)
    assert found, said
    return int(found[1])


@pytest.mark.more
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_whichever_write_fails_the_same_command_finishes_identically(
    name: str,
    every: int,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    calls = count_of(name, tmp_path / "counted")
    assert calls >= 10
    for at in {*range(1, calls + 1, every), calls}:
        folder = tmp_path / f"{name}-{at}"
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), at, errno.ENOSPC, []))
            capfd.readouterr()
            assert audited(folder) == DISK_FULL, at
        said = capfd.readouterr().err
        assert os.strerror(errno.ENOSPC) in said
        assert kept_of(said) == len(records(folder))
        left = [(path.name, path.stat().st_size) for path in folder.rglob("*.part")]
        assert left in ([], [("seal.json.part", 0)])  # the mark of a run that is not sealed yet
        assert audited(folder) == 0
        assert table(folder) == table(whole)
        assert find_changes(folder) == []
        assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_broken_disk_is_told_like_a_full_one(
    number: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for at in (1, 8, 20):
        folder = tmp_path / f"run-{at}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing(os.fsync, at, number, []))
            assert audited(folder) == DISK_FULL
        assert os.strerror(number) in capfd.readouterr().err
        assert audited(folder) == 0
        assert table(folder) == table(whole)


def limited(folder: Path, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    main([*COMMAND, str(folder)])


@pytest.mark.more
def test_a_limit_on_the_size_of_files_tears_a_write_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real writes that stop half-way: the smallest limits hit the config, larger ones pictures, journal and report."""
    larger = audit({"linear": linear()}, {"none": Defense()}, clients=12, controls=True)
    monkeypatch.setattr("gradveil.config.build", lambda config: larger)
    whole = tmp_path / "whole"
    assert audited(whole) == 0
    sizes = sorted({p.stat().st_size for p in whole.rglob("*") if p.is_file()})
    stopped = 0
    for limit in [size - 1 for size in sizes if size > 600] + [(whole / "journal.jsonl").stat().st_size // 2]:
        folder = tmp_path / f"limit-{limit}"
        child = forked(partial(limited, folder, limit), tmp_path / "said")
        assert child.wait() == DISK_FULL, child.output.read_text()
        assert kept_of(child.output.read_text()) == len(records(folder))
        stopped += 0 < len(records(folder)) < len(records(whole))
        assert audited(folder) == 0
        assert table(folder) == table(whole)
        assert find_changes(folder) == []
    assert stopped, "no limit stopped a run in its middle"


def test_a_disk_that_is_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*given, **options) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", no_room)
        assert audited(tmp_path / "run") == DISK_FULL
    assert audited(tmp_path / "run") == 0


class Broken(Exception):
    """A bug in a template."""


def test_a_report_that_cannot_be_written_leaves_the_old_one_whole(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (whole / "report.html").read_bytes()
    for name in ("open", "fsync", "replace"):
        for number in (errno.ENOSPC, errno.EIO, errno.EINTR):
            with monkeypatch.context() as patch:
                where = "gradveil.core.files" if name == "open" else "os"
                patch.setattr(f"{where}.{name}", raising(number), raising=False)
                assert failed("report", str(whole))
            assert (whole / "report.html").read_bytes() == before
            assert not list(whole.rglob("*.part"))
    assert code("report", str(whole)) == 0


def raising(number: int) -> Callable:
    return failing(lambda *given: None, 1, number, [])


def failed(*arguments: str) -> bool:
    """With an exit code, or with a traceback where it is our own bug."""
    try:
        main(arguments)
    except SystemExit as left:
        return left.code != 0
    except (OSError, Broken):
        return True
    return False


def test_a_bug_in_the_report_leaves_the_old_one_whole(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p.name: p.read_bytes() for p in whole.iterdir() if p.is_file() and p.name != "seal.json"}

    def breaks(*given, **options) -> str:
        raise Broken

    monkeypatch.setattr("gradveil.report.build.render_template", breaks)
    assert failed("report", str(whole))
    assert {name: (whole / name).read_bytes() for name in before} == before
