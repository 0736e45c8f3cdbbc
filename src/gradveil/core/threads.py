"""Threads that Ctrl-C does not wait for: one call into torch can take a minute."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import torch

from gradveil.core.progress import stoppable
from gradveil.core.time_limit import OutOfTime

NAME = "gradveil"
LISTEN = 0.5  # seconds until a wait looks up
Result = TypeVar("Result")
Submit = Callable[..., "Future[Any]"]


@contextmanager
def threads(count: int, of_torch: int) -> Iterator[Submit]:
    """So many threads, with so many of torch's own each. Work that nobody waits for any more ends after its step."""
    before, pool = torch.get_num_threads(), ThreadPoolExecutor(count, NAME, torch.set_num_threads, (of_torch,))
    with stoppable() as stop:
        try:  # whoever listens to the progress is known by the context
            yield lambda work, *given: pool.submit(copy_context().run, work, *given)
        except BaseException as error:
            stop.set()
            pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
            raise
        finally:
            pool.shutdown(wait=False)
            torch.set_num_threads(before)


def wait_for(future: Future[Result], until: float = math.inf) -> Result:
    """The result of the future; OutOfTime if it is not there at `until`, on the clock of `time.monotonic`.

    Python handles a signal between two of its instructions. One that comes just before a wait without an end would be
    handled at the end of the wait, so the wait ends twice a second.
    """
    while True:
        try:
            return future.result(max(0.0, min(LISTEN, until - time.monotonic())))
        except TimeoutError:
            if future.done():  # the work's own
                return future.result()
            if time.monotonic() >= until:
                raise OutOfTime from None


def left_behind(patience: float) -> bool:
    """Whether one of ours is still at work after so many seconds."""
    until = time.monotonic() + patience
    ours = [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]
    for thread in ours:
        thread.join(max(0.0, until - time.monotonic()))
    return any(thread.is_alive() for thread in ours)
