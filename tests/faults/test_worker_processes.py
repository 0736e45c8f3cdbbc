"""Worker processes that die, hang or are left alone; and one table for any number of them."""

from __future__ import annotations

import multiprocessing.connection
import os
import pickle
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from children import FOREVER, forked, records, table, until
from scenes import as_float32, fedavg, one_picture, smooth
from toys import Noise, audit, pictures

from gradveil.attacks import dlg, invertgrad
from gradveil.audit.audit import Audit, judge_of, run_audit
from gradveil.audit.runner import attack
from gradveil.audit.schedule import shards
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.experiment.parallel import processes as workers
from gradveil.metrics import METRICS

PLAIN = {"none": Defense()}
LIMIT = 3.0  # seconds, on a clock that stands still until all others are done: the machine may be busy


class Pairs(Compute):
    """Two clients to a shard."""

    @property
    def shard(self) -> int:
        return 2


@dataclass(frozen=True, kw_only=True)
class Sick(Noise):
    """Something happens to the process that meets one client."""

    happens: Callable[[], object] = field(repr=False)
    client: str = "c0002"

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        if self.client in seen.names:
            self.happens()
        return super().reconstruct(seen, seed, compute)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_first(times: int, notes: Path) -> None:
    """So many times, whoever is asked."""
    met = len(list(notes.iterdir()))
    (notes / str(met)).touch()
    if met < times:
        die()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.fixture
def sound(tmp_path: Path) -> str:
    run_audit(audit({"a": Noise()}, PLAIN, clients=8), tmp_path / "sound", Pairs())
    return table(tmp_path / "sound")


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_is_killed_is_tried_again_and_nothing_shows(
    times: int, tmp_path: Path, notes: Path, sound: str
) -> None:
    sick = Sick(happens=partial(die_at_first, times, notes))
    run_audit(audit({"a": sick}, PLAIN, clients=8), tmp_path / "run", Pairs(workers=2))
    assert table(tmp_path / "run") == sound
    assert len(list(notes.iterdir())) == times + 1


def test_a_worker_that_is_always_killed_is_a_failure_with_its_reason_and_the_others_go_on(
    tmp_path: Path, notes: Path, sound: str
) -> None:
    sick = Sick(happens=partial(die_at_first, 99, notes))
    run_audit(audit({"a": sick}, PLAIN, clients=8), tmp_path / "run", Pairs(workers=2))
    assert len(list(notes.iterdir())) == workers.MOST_TRIES
    failed = [r for r in records(tmp_path / "run") if r.status == "failed"]
    assert {r.client for r in failed} == {"c0002", "c0003"}  # who shared its process
    assert {r.reason for r in failed} == {"its process died 3 times, the last time by signal 9"}
    others = [line for line in table(tmp_path / "run").splitlines() if ",failed," not in line]
    assert set(others) < set(sound.splitlines())


def half_an_answer(self: multiprocessing.connection.Connection, content: bytes) -> None:
    os.write(self.fileno(), (len(content)).to_bytes(4, "big") + content[: len(content) // 2])
    die()


def test_a_worker_that_dies_in_the_middle_of_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing.connection.Connection, "send_bytes", half_an_answer)
        run_audit(audit({"a": Noise()}, PLAIN, clients=2), tmp_path / "run", Pairs(workers=2))
    assert {r.reason for r in records(tmp_path / "run")} == {"its process died 3 times, the last time by signal 9"}


def stop_clock(patch: pytest.MonkeyPatch, folder: Path, others: int) -> None:
    """No second passes before so many trials are there; then the limit is over at once."""

    def clock() -> float:
        there = records(folder) if folder.exists() else []
        return 10 * LIMIT if len(there) >= others else 0.0

    patch.setattr(workers, "time", SimpleNamespace(monotonic=clock))


def test_a_worker_that_hangs_is_ended_at_the_limit(tmp_path: Path, sound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sick = Sick(happens=partial(time.sleep, FOREVER))
    stop_clock(monkeypatch, tmp_path / "run", 6)
    run_audit(audit({"a": sick}, PLAIN, clients=8), tmp_path / "run", Pairs(workers=2, limit=LIMIT))
    failed = [r for r in records(tmp_path / "run") if r.status == "failed"]
    assert {r.client for r in failed} == {"c0002", "c0003"}
    assert {r.reason for r in failed} == {"its process took longer than the limit of 3 s"}


def test_a_limit_needs_workers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`workers = 1` or more"):
        run_audit(audit({"a": Noise()}), tmp_path / "run", Compute(limit=1.0))
    assert not (tmp_path / "run").exists()


def raise_memory_error() -> None:
    raise MemoryError


@pytest.mark.more
def test_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four attacks in one run, each sick in its way: every trial is there, and only the sick ones failed."""
    attacks = {
        "dies": Sick(happens=die),
        "hangs": Sick(happens=partial(time.sleep, FOREVER)),
        "needs-memory": Sick(happens=raise_memory_error),
        "nan": Noise(loss=lambda name: float("nan") if name == "c0002" else 1.0),
    }
    stop_clock(monkeypatch, tmp_path / "run", 4 * 8 - 2)
    run_audit(audit(attacks, PLAIN, clients=8), tmp_path / "run", Pairs(workers=2, limit=LIMIT))
    found = records(tmp_path / "run")
    assert len(found) == 4 * 8
    failed = {(r.attack, r.client) for r in found if r.status == "failed"}
    both = {(name, client) for name in ("dies", "hangs") for client in ("c0002", "c0003")}
    assert failed == both | {("needs-memory", "c0002"), ("nan", "c0002")}


def test_one_table_for_four_workers(tmp_path: Path) -> None:
    tables = set()
    for count in (0, 4):
        run_audit(
            audit({"a": Noise(), "b": Noise()}, clients=9, controls=True), tmp_path / str(count), Pairs(workers=count)
        )
        tables.add(table(tmp_path / str(count)))
    assert len(tables) == 1


def search(scenario: Scenario) -> Audit:
    scenario = as_float32(scenario)
    attacks = {"dlg": dlg(steps=20, restarts=1), "invertgrad": invertgrad(steps=20, restarts=1)}
    metrics = (METRICS["psnr"](), METRICS["retrieval"](gallery=pictures(5, 3)))
    return Audit(scenario=scenario, defenses=PLAIN, attacks=attacks, metrics=metrics, controls=False)


SCENES = [
    partial(one_picture, 5, smooth()),
    pytest.param(partial(fedavg, 5), marks=pytest.mark.slow),
    pytest.param(partial(one_picture, 40), marks=pytest.mark.slow),
]


@pytest.mark.more
@pytest.mark.parametrize("scene", SCENES)
def test_one_table_for_any_number_of_workers(scene, tmp_path: Path) -> None:
    """A real search in float32, to the last bit."""
    tables = set()
    for count in (0, 1, 2):
        run_audit(search(scene()), tmp_path / str(count), Pairs(workers=count))
        tables.add(table(tmp_path / str(count)))
    assert len(tables) == 1


@pytest.mark.more
def test_another_number_of_workers_goes_on_with_a_run(tmp_path: Path) -> None:
    whole = search(one_picture(5, smooth()))
    run_audit(whole, tmp_path / "whole", Pairs())
    run_audit(whole, tmp_path / "run", Pairs(workers=2))
    path = tmp_path / "run/journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 3]))
    run_audit(whole, tmp_path / "run", Pairs(workers=1))
    assert table(tmp_path / "run") == table(tmp_path / "whole")


def test_an_answer_is_as_large_as_its_pictures() -> None:
    """Not once all pictures of the shard for every picture in it."""
    whole = audit({"a": Noise()}, PLAIN, clients=32)
    (group,) = shards(whole, Compute(), 32)
    answer = pickle.dumps(attack(group, judge_of(whole)))
    assert len(answer) < 3 * 32 * (3 * 8 * 8 * 4) + 32 * 4000


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def tell_and_sleep(notes: Path) -> None:
    (notes / str(os.getpid())).touch()
    time.sleep(FOREVER)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_leave_with_their_parent_and_its_lock_clears_itself(
    number: signal.Signals, tmp_path: Path, notes: Path
) -> None:
    sick = Sick(happens=partial(tell_and_sleep, notes))
    slow = partial(run_audit, audit({"a": sick, "b": sick}, PLAIN, clients=8), tmp_path / "run", Pairs(workers=2))
    parent = forked(slow, tmp_path / "log")
    until(lambda: len(list(notes.iterdir())) == 2)
    parent.kill(number)
    assert parent.wait() == -number
    sound = Sick(happens=lambda: None)
    run_audit(audit({"a": sound, "b": sound}, PLAIN, clients=8), tmp_path / "run", Pairs())  # the lock is free at once
    assert len(records(tmp_path / "run")) == 16
    until(lambda: not any(alive(int(p.name)) for p in notes.iterdir()))


def test_threads_are_as_before(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    run_audit(audit({"a": Noise()}, PLAIN), tmp_path / "run", Pairs(workers=2))
    assert torch.get_num_threads() == before
