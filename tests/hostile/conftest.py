"""How every bad input must end: exit code 2, one line that names it, nothing written, little memory taken."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradveil.cli import main
from hostile.forged import tree

KILOBYTES, LETTERS = 400_000, 6_000

Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder, with the caller's umask back in place afterwards."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused; its line on standard error."""

    def run(*arguments: str, naming: str) -> str:
        before, memory = tree(tmp_path), peak()
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capsys.readouterr()
        assert (left.value.code, out) == (2, ""), err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert naming in err
        assert "Traceback" not in err
        assert len(err) < LETTERS
        assert tree(tmp_path) == before, "something was written"
        assert peak() - memory < KILOBYTES
        return err

    return run


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
