"""Chunks and the memory they are cut by."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from gradveil.core.compute import Compute
from gradveil.engine import chunks

TRIALS = [(client, 0) for client in range(10)]
HEAVY = 10**8  # bytes


class Room:
    """An attack with room for so many trials at once."""

    def __init__(self, room: int) -> None:
        self.room, self.asked, self.done = room, [], []

    def __call__(self, trials: chunks.Trials) -> chunks.Trials:
        self.asked.append(len(trials))
        if len(trials) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        self.done += trials
        return trials


def flat(parts: list[chunks.Trials]) -> chunks.Trials:
    return [trial for part in parts for trial in part]


@pytest.mark.parametrize("room", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("size", [1, 3, 10, 99])
def test_every_trial_once_and_in_order_whatever_fits(room: int, size: int) -> None:
    attack = Room(room)
    assert flat(chunks.one_after_the_other(attack, TRIALS, size)) == attack.done == TRIALS


def test_what_was_done_is_not_done_again() -> None:
    attack = Room(10)
    asked = []

    def shrinking(trials: chunks.Trials) -> chunks.Trials:
        asked.append(trials)
        attack.room = 10 if len(asked) == 1 else 1  # somebody else takes the memory after the first chunk
        return attack(trials)

    assert flat(chunks.one_after_the_other(shrinking, TRIALS, 4)) == TRIALS
    assert asked[1] == TRIALS[4:8]
    assert attack.asked == [4, 4, 2, 1, 1, 1, 1, 1, 1]


def test_one_trial_that_does_not_fit_is_raised() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        chunks.one_after_the_other(Room(0), TRIALS, 4)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (torch.OutOfMemoryError("x"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (RuntimeError("memory format option is only supported by strided tensors"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, is_memory: bool) -> None:
    assert chunks.is_out_of_memory(error) == is_memory


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("fits", [1, 3, 1000])
def test_chunks_side_by_side_come_back_in_order(cores: int, fits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(cores)
    monkeypatch.setattr(chunks, "trials_that_fit", lambda each, device, sharers: fits if each == HEAVY else 0)
    attack = Room(1000)
    assert flat(chunks.run(attack, TRIALS, Compute(), lambda: HEAVY)) == TRIALS
    assert max(attack.asked) <= fits
    assert torch.get_num_threads() == cores


@pytest.mark.parametrize(
    ("trials", "each", "plan"),
    [(8, 10**5, (8, 1)), (200, 10**5, (50, 2)), (2, HEAVY, (1, 2)), (200, HEAVY, (25, 2)), (1, HEAVY, (1, 1))],
)
def test_light_trials_stay_together_and_heavy_ones_spread(trials: int, each: int, plan: tuple[int, int]) -> None:
    assert chunks.cpu_plan(trials, 2, None, lambda: each) == plan


def test_a_given_chunk_is_not_measured() -> None:
    attack = Room(1000)
    chunks.run(attack, TRIALS, Compute(chunk=4), lambda: pytest.fail("measured"))
    assert attack.asked == [4, 4, 2]


def test_an_error_in_one_thread_is_raised_and_the_threads_are_given_back() -> None:
    torch.set_num_threads(2)

    def fails(trials: chunks.Trials) -> chunks.Trials:
        if threading.current_thread() is threading.main_thread() or trials == TRIALS[:5]:
            raise KeyError("broken")
        return trials

    with pytest.raises(KeyError, match="broken"):
        chunks.run(fails, TRIALS, Compute(), lambda: HEAVY)
    assert torch.get_num_threads() == 2


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch):
    """Sets how many bytes the machine has free."""

    def give(amount: int) -> None:
        monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": amount, "SC_PAGE_SIZE": 1}.__getitem__)

    return give


def fit(numbers: int, sharers: int = 1) -> int:
    one = torch.zeros(numbers)
    return chunks.trials_that_fit(chunks.bytes_of(lambda: one + 1, "cpu"), "cpu", sharers)


def test_more_memory_fits_more_trials_and_larger_trials_fit_fewer(free) -> None:
    found = []
    for amount in (10**6, 10**7, 10**8):
        free(amount)
        found.append([fit(numbers) for numbers in (10, 1000, 100_000)])
    assert all(row == sorted(row, reverse=True) for row in found)
    assert all(list(column) == sorted(column) for column in zip(*found, strict=True))
    assert len({n for row in found for n in row}) > 5


def test_the_count_by_hand(free) -> None:
    free(8000)
    assert fit(10) == 8000 * chunks.SHARE // 40
    assert fit(10, sharers=4) == fit(10) // 4


def test_at_least_one(free) -> None:
    free(1)
    assert fit(1000) == 1


def test_views_take_nothing_and_copies_do() -> None:
    x = torch.zeros(1000)
    assert chunks.cpu_bytes(lambda: x.view(10, 100)[:2].T) == 0
    assert chunks.cpu_bytes(lambda: (x + 1).double()) == 4000 + 8000


def test_memory_grows_with_the_trials_of_an_evaluation() -> None:
    weight = torch.randn(50, 50)
    used = [chunks.cpu_bytes(lambda n=n: torch.vmap(lambda x: (weight @ x).tanh())(torch.ones(n, 50))) for n in (1, 8)]
    assert used[1] > 4 * used[0]
