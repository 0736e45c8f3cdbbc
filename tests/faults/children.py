"""Children of the test process, made by fork so that torch need not be imported again, to be killed and interrupted."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gradveil.audit.table import as_csv
from gradveil.experiment import journal
from gradveil.experiment.record import Record

GUARD = 600.0  # seconds after which something hangs; no test asks for less
FOREVER = 3600.0  # of a step that nobody waits for: whoever does meets the guard


@dataclass(frozen=True)
class Child:
    """A process that does one thing; what it prints is in `output`."""

    pid: int
    output: Path

    def kill(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_running(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, guard: float = GUARD) -> int:
        """Its exit code, negative for a signal."""
        until = time.monotonic() + guard
        while self.is_running():
            if time.monotonic() > until:
                self.kill(signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"still running after {guard} s, said: {self.output.read_text()}")
            time.sleep(0.002)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def forked(work: Callable[[], object], output: Path) -> Child:
    """A child that does the work and leaves with its exit code; a traceback is code 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12, of threads that other tests left
        pid = os.fork()
    if pid:
        return Child(pid, output)
    _be_a_program(output)
    try:
        work()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    os._exit(code)


def _be_a_program(output: Path) -> None:
    """Output to a file and signals as a shell gives them: nothing of pytest is left."""
    import sys

    handle = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def until(condition: Callable[[], object], guard: float = GUARD) -> None:
    end = time.monotonic() + guard
    while not condition():
        assert time.monotonic() < end, "it never came to this"
        time.sleep(0.005)


def records(folder: Path) -> list[Record]:
    return journal.read(folder / "journal.jsonl")


def table(folder: Path) -> str:
    """What one audit gives, whatever happened on the way."""
    found = records(folder)
    keys = [record.key for record in found]
    assert len(keys) == len(set(keys)), "a trial is there twice"
    return as_csv(found)
