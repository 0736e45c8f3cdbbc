"""Shards in processes of their own: one that dies or hangs takes nothing with it. Forked, so any model can travel."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, Generic, TypeVar

import torch

from gradveil.core.threads import LISTEN
from gradveil.core.time_limit import OutOfTime

Job = TypeVar("Job")
Result = TypeVar("Result")
MOST_TRIES = 3


@dataclass(eq=False)  # jobs hold tensors, which cannot be compared
class Running(Generic[Job]):
    """One process at work."""

    job: Job
    tries: int
    process: Any
    answer: Connection
    until: float  # on the monotonic clock


def run_each(
    work: Callable[[Job], Result],
    jobs: Sequence[Job],
    workers: int,
    give_up: Callable[[Job, str], Result],
    limit: float | None = None,
    until: float = math.inf,
) -> Iterator[tuple[Job, Result]]:
    """Every job with its result, in the order in which they end; `give_up` answers for a job whose process died.

    A process that takes longer than `limit` seconds is ended, once: what hangs will hang again. At `until`, on the
    clock of `time.monotonic`, all are ended: OutOfTime.
    """
    waiting, running = [(job, 1) for job in reversed(jobs)], []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(work, *waiting.pop(), limit))
            if time.monotonic() >= until:
                raise OutOfTime
            for ended in _wait_for_ended(running):
                running.remove(ended)
                why, result = _collect(ended)
                if why is None:
                    yield ended.job, result
                elif _is_late(ended):
                    yield ended.job, give_up(ended.job, f"its process took longer than the limit of {limit:g} s")
                elif ended.tries < MOST_TRIES:
                    waiting.append((ended.job, ended.tries + 1))
                else:
                    yield ended.job, give_up(ended.job, f"its process died {MOST_TRIES} times, the last time {why}")
    finally:
        for one in running:
            one.process.kill()
            one.process.join()


def _start(work: Callable[[Job], Result], job: Job, tries: int, limit: float | None) -> Running[Job]:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_work, args=(work, job, theirs), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12, of threads: the child has one and says so
        process.start()
    theirs.close()
    return Running(job, tries, process, ours, time.monotonic() + (float("inf") if limit is None else limit))


def _work(work: Callable[[Job], Result], job: Job, answer: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # threads do not survive a fork, and one each keeps results equal for any number
    answer.send_bytes(pickle.dumps(work(job)))  # send() would pass tensors as shared memory, which dies with us


def _leave_with_parent() -> None:
    """A parent that was killed cannot end us, and nobody wants our answer any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _is_late(one: Running[Job]) -> bool:
    return time.monotonic() >= one.until


def _wait_for_ended(running: Sequence[Running[Job]]) -> list[Running[Job]]:
    """Those that have answered or died, or were ended here since their time is over; waits half a second at most."""
    handles = [handle for one in running for handle in (one.answer, one.process.sentinel)]
    until = min(one.until for one in running)
    ready = wait(handles, max(0.0, min(LISTEN, until - time.monotonic())))
    ended = [one for one in running if one.answer in ready or one.process.sentinel in ready]
    late = [one for one in running if one not in ended and _is_late(one)]
    for one in late:
        one.process.kill()
    return ended + late


def _collect(one: Running[Job]) -> tuple[str | None, Any]:
    """Why it died, or None and its result."""
    try:
        result = pickle.loads(one.answer.recv_bytes())  # written by our own child
    except (EOFError, OSError):  # OSError: it died in the middle of its answer
        one.process.join()
        code = one.process.exitcode
        return (f"by signal {-code}" if code < 0 else f"with exit code {code}"), None
    finally:
        one.answer.close()
    one.process.join()
    return None, result
