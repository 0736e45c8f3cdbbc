"""Many independent tasks: here, in processes of this machine, or on a Ray cluster. The same results everywhere.

Every task runs on one thread, so that a sum is rounded alike wherever it is made.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import torch

from gradveil.core.errors import ConfigError, GradveilError
from gradveil.experiment.parallel import processes as workers

Job = TypeVar("Job")
Result = TypeVar("Result")
LOCAL = "local"  # an own cluster on this machine, for as long as the tasks take
IN_FLIGHT = 4  # tasks per core of a cluster that are on their way at once
USER_MODEL = "gradveil_user_model_"  # how modules of a user's model file are named; no other machine has them


class FanoutError(GradveilError):
    """A task that cannot be finished anywhere."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Fanout:
    """Where tasks run: `workers` processes, a Ray cluster at `ray` (an address, `auto` or `local`), or here."""

    workers: int = 0
    ray: str = ""
    gpus: float = 0.0  # of one task on a Ray cluster

    def held(self) -> AbstractContextManager[Any]:
        """The cluster stays connected inside, however often `each` is called."""
        return _cluster(self.ray) if self.ray else nullcontext()

    def each(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        gave_up: Callable[[Job, str], Result] | None = None,
    ) -> Iterator[tuple[Job, Result]]:
        """Every job with its result, in the order in which they end.

        A worker that dies is replaced and its task, with the same seeds, tried again. An error of a task, or a task
        that no worker survives, is an error here unless `gave_up` answers for it.
        """
        if not jobs:
            return iter(())
        if self.ray:
            told = _on_ray(work, jobs, self.ray, self.gpus)
            return ((job, _answer(job, one, gave_up)) for job, one in told)
        if self.workers:
            told = workers.each(_caught(work), jobs, self.workers, _gave_up)
            return ((job, _answer(job, one, gave_up)) for job, one in told)
        return _here(work, jobs)

    def check(self, device: str) -> None:
        """What cannot work here, said before anything is computed."""
        if self.workers < 0:
            raise ConfigError(f"must be 0 or more, got {self.workers}", key="workers")
        if self.workers and self.ray:
            raise ConfigError("a Ray cluster has workers of its own, leave out `workers` or `ray`", key="workers")
        if self.workers and (device != "cpu" or torch.cuda.is_initialized()):
            raise ConfigError("a GPU cannot be shared by processes, use `device = cpu` or leave it out", key="workers")
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


def _here(work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
    for job in jobs:
        with one_thread():
            result = work(job)
        yield job, result


@dataclass(frozen=True)
class _caught:
    """The work with its error as a value: a process that dies of an error would be tried again."""

    work: Callable[[Any], Any]

    def __call__(self, job: Any) -> tuple[Any, str]:
        try:
            return self.work(job), ""
        except Exception as error:
            return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _answer(job: Any, told: tuple[Any, str], gave_up: Callable[[Any, str], Any] | None) -> Any:
    result, error = told
    if error and gave_up is None:
        raise FanoutError(f"a task failed, {error}")
    return gave_up(job, error) if error and gave_up is not None else result


def _gave_up(job: Any, why: str) -> tuple[Any, str]:
    return None, why


def _on_ray(
    work: Callable[[Job], Any], jobs: Sequence[Job], address: str, gpus: float
) -> Iterator[tuple[Job, tuple[Any, str]]]:
    """As many tasks on their way as keep the cluster busy; what the work holds (model, data) travels once."""
    with _cluster(address) as ray:
        at_once = IN_FLIGHT * max(1, int(ray.cluster_resources().get("CPU", 1)))
        again = workers.MOST_TRIES - 1
        remote = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD", max_retries=again)(_task)
        shared, waiting, flying = ray.put(_caught(work)), list(reversed(jobs)), {}
        while waiting or flying:
            while waiting and len(flying) < at_once:
                job = waiting.pop()
                flying[remote.remote(shared, job)] = job
            done, _ = ray.wait(list(flying), num_returns=1)
            yield flying.pop(done[0]), _fetched(ray, done[0])


def _fetched(ray: Any, reference: Any) -> tuple[Any, str]:
    """What a task told; a task that no worker survived has told nothing."""
    try:
        return ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        return None, f"its process died {workers.MOST_TRIES} times"
    except ray.exceptions.RayError as error:
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _task(work: Callable[[Any], Any], job: Any) -> Any:
    torch.set_num_threads(1)
    return work(job)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected: to the cluster at the address, or to one of our own that ends with us. Never ends another."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    import ray
    from ray import cloudpickle

    quiet: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {"address": address}
    for name in [name for name in sys.modules if name.startswith(USER_MODEL)]:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    was_there = ray.is_initialized()
    if not was_there:
        try:
            ray.init(**quiet, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, OSError, TimeoutError) as error:
            raise ConfigError(f"no cluster at {address}, {' '.join(str(error).split())[:200]}", key="ray") from error
    try:
        yield ray
    finally:
        if not was_there:
            ray.shutdown()
