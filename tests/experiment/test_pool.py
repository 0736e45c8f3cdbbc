"""Tasks give the same results here, in processes and on Ray; what fails is told in one line."""

from __future__ import annotations

import os

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.experiment.parallel.pool import Pool, PoolError

JOBS = list(range(7))


def squared(job: int) -> tuple[int, int]:
    return job * job, torch.get_num_threads()


def fails(job: int) -> int:
    if job == 3:
        raise ValueError("three is\nnot wanted")
    return job


def dies(job: int) -> int:
    os._exit(9)


@pytest.mark.parametrize("pool", [Pool(), Pool(workers=1), Pool(workers=3)], ids=repr)
def test_every_job_once_on_one_thread(pool: Pool) -> None:
    torch.set_num_threads(2)
    found = dict(pool.each(squared, JOBS))
    assert found == {job: (job * job, 1) for job in JOBS}
    assert torch.get_num_threads() == 2


def test_no_job_starts_nothing() -> None:
    assert list(Pool(ray="nowhere:1").each(squared, [])) == []


def test_an_error_in_a_process_is_told_on_one_line() -> None:
    with pytest.raises(PoolError, match="ValueError: three is not wanted"):
        list(Pool(workers=2).each(fails, JOBS))


def test_a_process_that_dies_again_and_again_is_given_up() -> None:
    with pytest.raises(PoolError, match="died 3 times"):
        list(Pool(workers=1).each(dies, [0]))


@pytest.mark.parametrize(
    ("pool", "device", "said"),
    [
        (Pool(workers=-1), "cpu", "workers: must be 0 or more"),
        (Pool(workers=2, ray="auto"), "cpu", "leave out `workers` or `ray`"),
        (Pool(workers=2), "cuda", "cannot be shared"),
    ],
)
def test_what_cannot_work_is_said_at_once(pool: Pool, device: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        pool.check(device)


def test_ray_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.experiment.parallel.pool.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"install gradveil\[ray\]"):
        Pool(ray="auto").check("cpu")
