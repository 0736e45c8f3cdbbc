"""Many independent tasks: here, in processes of this machine, or on a Ray cluster. The same results everywhere.

Every task runs on one thread, so that a sum is rounded alike wherever it is made.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch

from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, GradveilError
from gradveil.core.files import scratch
from gradveil.core.threads import threads, wait_for
from gradveil.core.time_limit import OutOfTime
from gradveil.experiment.parallel import processes

Job = TypeVar("Job")
Result = TypeVar("Result")
LOCAL = "local"  # a Ray cluster of our own on this machine, for as long as the tasks take
IN_FLIGHT = 4  # tasks per core of a cluster that are on their way at once
USER_MODEL = "gradveil_user_model_"  # prefix of the modules of a user's model file; no other machine has them
LONGEST_ERROR = 300
NOWHERE = "http://127.0.0.1:9"  # the port that discards: nobody listens
# Ray's dashboard asks addresses of clouds where it runs, even without a dashboard and with its statistics turned off
NO_WEB = {
    "http_proxy": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "no_proxy": "127.0.0.1,localhost",
    "NO_PROXY": "127.0.0.1,localhost",
}


class PoolError(GradveilError):
    """A task that cannot be finished anywhere."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Where tasks run: `workers` processes, a Ray cluster at `ray` (an address, `auto` or `local`), or this process.

    `gpus` is what one task takes on a Ray cluster, `limit` the seconds after which a process counts as hanging. With
    `all_threads` a task of this process has all threads of torch and runs beside us, so that Ctrl-C is heard at once.
    """

    workers: int = 0
    ray: str = ""
    gpus: float = 0.0
    limit: float | None = None
    all_threads: bool = False

    @classmethod
    def of(cls, compute: Compute, all_threads: bool = False) -> Pool:
        """As the settings ask; on a cluster every task has a GPU where GPUs are asked for."""
        gpus = float(compute.device.startswith("cuda"))
        return cls(workers=compute.workers, ray=compute.ray, gpus=gpus, limit=compute.limit, all_threads=all_threads)

    @property
    def spread(self) -> bool:
        """Whether tasks leave this process."""
        return bool(self.workers or self.ray)

    def connected(self, place: Path | None = None) -> AbstractContextManager[Any]:
        """The cluster stays connected inside, however often `each` is called. One of our own, which runs out of memory,
        writes tasks and results below `place`."""
        return _cluster(self.ray, place) if self.ray else nullcontext()

    def each(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        give_up: Callable[[Job, str], Result] | None = None,
        on_start: Callable[[Job], None] | None = None,
        until: float = math.inf,
    ) -> Iterator[tuple[Job, Result]]:
        """Every job with its result, in the order in which they end.

        A worker that dies is replaced and its task, with the same seeds, tried again. An error of a task, or a task
        that no worker survives, is an error here unless `give_up` answers for it. `on_start` is called before a job of
        this process; of a job that is elsewhere nobody knows when it starts, and it is called when the job has ended.
        At `until`, on the clock of `time.monotonic`, what still runs is left and OutOfTime raised.
        """
        if not jobs:
            return iter(())
        on_start = on_start or _ignore
        if self.ray:
            return _collect(_on_ray(work, jobs, self.ray, self.gpus, until), give_up, on_start)
        if self.workers:
            answers = processes.run_each(_Caught(work), jobs, self.workers, _no_result, self.limit, until)
            return _collect(answers, give_up, on_start)
        return (_beside if self.all_threads else _here)(work, jobs, on_start, until)

    def check(self, device: str) -> None:
        """Refuse what cannot work here, before anything is computed."""
        if self.workers < 0:
            raise ConfigError(f"must be 0 or more, got {self.workers}", key="workers")
        if self.workers and self.ray:
            raise ConfigError("a Ray cluster has workers of its own, leave out `workers` or `ray`", key="workers")
        if self.workers and device != "cpu":
            raise ConfigError("a GPU cannot be shared by processes, use `device = cpu` or leave it out", key="workers")
        if self.workers and torch.cuda.is_initialized():
            raise ConfigError("this process has used a GPU and can no longer be forked, start a new one", key="workers")
        if self.limit is not None and not self.workers:
            raise ConfigError("only a process of its own can be ended, use `workers = 1` or more", key="limit")
        if self.ray and find_spec("ray") is None:
            raise ConfigError("the package ray is not installed, install gradveil[ray] or leave it out", key="ray")


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _ignore(job: Any) -> None:
    """Nobody wants to know."""


def _here(
    work: Callable[[Job], Result], jobs: Sequence[Job], on_start: Callable[[Job], None], until: float
) -> Iterator[tuple[Job, Result]]:
    """A job that has begun is finished, since nothing looks at the clock beside it."""
    for job in jobs:
        if time.monotonic() >= until:
            raise OutOfTime
        on_start(job)
        with one_thread():
            result = work(job)
        yield job, result


def _beside(
    work: Callable[[Job], Result], jobs: Sequence[Job], on_start: Callable[[Job], None], until: float
) -> Iterator[tuple[Job, Result]]:
    with threads(1, of_torch=torch.get_num_threads()) as submit:
        for job in jobs:
            on_start(job)
            yield job, wait_for(submit(work, job), until)


@dataclass(frozen=True)
class _Caught:
    """The work with its error as a value: a process that dies of an error would be tried again."""

    work: Callable[[Any], Any]

    def __call__(self, job: Any) -> tuple[Any, str]:
        try:
            return self.work(job), ""
        except Exception as error:
            return None, _describe(error)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST_ERROR]}"


def _no_result(job: Any, why: str) -> tuple[Any, str]:
    return None, why


def _collect(
    answers: Iterator[tuple[Any, tuple[Any, str]]],
    give_up: Callable[[Any, str], Any] | None,
    on_start: Callable[[Any], None],
) -> Iterator[tuple[Any, Any]]:
    for job, (result, error) in answers:
        on_start(job)
        if error and give_up is None:
            raise PoolError(f"a task failed, {error}")
        yield job, give_up(job, error) if error and give_up is not None else result


def _on_ray(
    work: Callable[[Job], Any], jobs: Sequence[Job], address: str, gpus: float, until: float
) -> Iterator[tuple[Job, tuple[Any, str]]]:
    """As many tasks on their way as keep the cluster busy; what the work holds (model, data) travels once."""
    with _cluster(address) as ray:
        at_once = IN_FLIGHT * max(1, int(ray.cluster_resources().get("CPU", 1)))
        again = processes.MOST_TRIES - 1
        remote = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", max_retries=again)(_task)
        shared, waiting, flying = ray.put(_Caught(work)), list(reversed(jobs)), {}
        while waiting or flying:
            while waiting and len(flying) < at_once:
                job = waiting.pop()
                flying[remote.remote(shared, job)] = job
            left = until - time.monotonic()
            done, _ = ray.wait(list(flying), num_returns=1, timeout=max(0.0, left) if math.isfinite(left) else None)
            if not done:
                _cancel(ray, flying)
                raise OutOfTime
            yield flying.pop(done[0]), _fetch(ray, done[0])


def _cancel(ray: Any, flying: Mapping[Any, Any]) -> None:
    """A cluster that is not ours goes on without us."""
    for reference in flying:
        ray.cancel(reference, force=True)


def _fetch(ray: Any, reference: Any) -> tuple[Any, str]:
    """The result of a task, or why there is none."""
    try:
        return ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return None, f"its process died {processes.MOST_TRIES} times"
    except ray.exceptions.RayError as error:
        return None, _describe(error)


def _task(work: Callable[[Any], Any], job: Any) -> Any:
    torch.set_num_threads(1)
    with scratch(None):  # the folder of the run may be on another machine
        return work(job)


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    """For the processes that are started inside."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@contextmanager
def _cluster(address: str, place: Path | None = None) -> Iterator[Any]:
    """Ray, connected: to the cluster at the address, or to one of our own that ends with us. Never ends another."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    import ray
    from ray import cloudpickle

    ours = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    quiet: dict[str, Any] = ours if address == LOCAL else {"address": address}
    if address == LOCAL and place is not None:
        quiet["object_spilling_directory"] = str(place.resolve() / "ray")
        (place / "ray").mkdir(parents=True, exist_ok=True)
    for name in [name for name in sys.modules if name.startswith(USER_MODEL)]:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    was_running = ray.is_initialized()
    if not was_running:
        try:
            with _environment(NO_WEB if address == LOCAL else {}):
                ray.init(**quiet, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, OSError, TimeoutError) as error:
            raise ConfigError(f"no cluster at {address}, {' '.join(str(error).split())[:200]}", key="ray") from error
    try:
        yield ray
    finally:
        if not was_running:
            ray.shutdown()
