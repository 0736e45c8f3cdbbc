"""Ctrl-C and SIGTERM at any moment: nobody waits for a step, what is finished is kept, the same command goes on."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from children import FOREVER, GUARD, Child, forked, records, table, until
from toys import Noise, audit

from gradveil.cli import main
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine import chunks
from gradveil.experiment.seal import find_changes

INTERRUPTED = 130
SEARCH = (
    *(
        "audit",
        "--data",
        "digits",
        "--model",
        "mlp",
        "--images",
        "4",
        "--metric",
        "psnr",
        "--device",
        "cpu",
        "--lineup",
        "off",
    ),
    *("--attack", "invertgrad:steps=120,restarts=1", "--attack", "dlg:steps=12,restarts=1"),
    *("--defense", "none", "--defense", "gaussian", "--defense", "laplacian", "--no-convergence", "--out"),
)


def command(*arguments: str) -> None:
    main(arguments)


def began(child: Child) -> bool:
    """At work, as its first line of progress says, or at its end already. A journal may be that of the run before."""
    return (child.output.exists() and bool(child.output.read_text())) or not child.is_running()


def is_interrupted(folder: Path, after: float, *numbers: signal.Signals) -> bool:
    """Whether the command was still at work; if so, it leaves and says what it keeps."""
    folder.with_suffix(".log").unlink(missing_ok=True)
    child = forked(partial(command, *SEARCH, str(folder)), folder.with_suffix(".log"))
    until(lambda: began(child))
    time.sleep(after)
    for number in numbers:
        child.kill(number)
        time.sleep(0.02)
    code, said = child.wait(), child.output.read_text()
    assert code in (0, INTERRUPTED), said
    assert "Traceback" not in said
    if code == INTERRUPTED and len(numbers) == 1:
        kept = re.search(r"^interrupted: (\d+) trials are kept, go on with --out ", said, re.MULTILINE)
        assert kept, said
        assert int(kept[1]) == len(records(folder))
    return code == INTERRUPTED


def interrupted_often(folder: Path, whole: Path, ways: Sequence[Sequence[signal.Signals]]) -> None:
    """A run that came to its end in spite of it is compared, and the next one begins."""
    rng, runs = random.Random(0), 0
    for way in ways:
        while not is_interrupted(folder / str(runs), rng.uniform(0.0, 0.5), *way):
            assert_undisturbed(folder / str(runs), whole)
            runs += 1
    child = forked(partial(command, *SEARCH, str(folder / str(runs))), folder / "log")
    assert child.wait() == 0, child.output.read_text()
    assert_undisturbed(folder / str(runs), whole)


def assert_undisturbed(folder: Path, whole: Path) -> None:
    assert table(folder) == table(whole)
    assert find_changes(folder) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Undisturbed; in this process, so that what torch does only once is done for all children."""
    folder, before = tmp_path_factory.mktemp("whole") / "run", os.umask(0o077)
    torch.set_num_threads(1)
    with pytest.raises(SystemExit) as left:
        main([*SEARCH, str(folder)])
    os.umask(before)
    assert not left.value.code
    return folder


@pytest.mark.more
def test_ctrl_c_once_or_twice_and_the_signal_of_a_scheduler(tmp_path: Path, whole: Path) -> None:
    ways = [[signal.SIGINT], [signal.SIGINT, signal.SIGINT], [signal.SIGTERM]]
    interrupted_often(tmp_path, whole, [*ways, [signal.SIGINT], [signal.SIGINT]])


@pytest.mark.slow
def test_ctrl_c_at_random_moments(tmp_path: Path, whole: Path) -> None:
    interrupted_often(tmp_path, whole, [[signal.SIGINT]] * 20)


@pytest.mark.slow
def test_a_second_ctrl_c_and_the_signal_of_a_scheduler(tmp_path: Path, whole: Path) -> None:
    interrupted_often(tmp_path, whole, [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM]] * 2)


class Long(Noise):
    """One call that no signal can reach, and that does not end while the test runs."""

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        print("in the long call", flush=True)
        time.sleep(FOREVER)
        return super().reconstruct(seen, seed, compute)


class LongOnEveryCore(Long):
    """The same on two threads at once, as large searches run."""

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        def one(trials: chunks.Trials) -> None:
            Long.reconstruct(self, seen, seed, compute)

        torch.set_num_threads(2)
        chunks.run(one, [(0, 0), (1, 0)], Compute(chunk=1), lambda: 10**9)
        raise AssertionError("nobody may come to this")


@pytest.mark.parametrize("attack", [Long(), LongOnEveryCore()], ids=["one call", "two threads"])
@pytest.mark.parametrize(("workers", "number"), [(0, signal.SIGINT), (0, signal.SIGTERM), (2, signal.SIGINT)])
def test_no_step_is_too_long_to_be_interrupted(
    attack: Noise, workers: int, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = audit({"noise": Noise(), "long": attack}, {"none": Defense()})
    monkeypatch.setattr("gradveil.config.build", lambda config: slow)
    arguments = (*SEARCH, str(tmp_path / "run"), "--workers", str(workers))
    child = forked(partial(command, *arguments), tmp_path / "log")
    until(lambda: child.output.exists() and "in the long call" in child.output.read_text())
    until(lambda: len(records(tmp_path / "run")) == 3)
    child.kill(number)
    assert child.wait() == INTERRUPTED
    assert "interrupted: 3 trials are kept" in child.output.read_text()
    assert len(records(tmp_path / "run")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["vmap", "sweep"])
def test_a_real_search_with_long_steps_on_two_threads(backend: str, tmp_path: Path) -> None:
    """Every step of it takes ten seconds and more on a small machine."""
    scene = ("--data", "photos", "--model", "convnet64", "--images", "32", "--defense", "none")
    how = ("--attack", "invertgrad:steps=100000,restarts=2", "--backend", backend, "--device", "cpu")
    words = [sys.executable, "-m", "gradveil", "audit", *scene, *how, "--out", str(tmp_path / "run")]
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "2"})
    until(lambda: "[1/" in (tmp_path / "log").read_text())
    time.sleep(20)  # into the middle of a step
    child.send_signal(signal.SIGINT)
    assert child.wait(GUARD) == INTERRUPTED
    assert "interrupted: 0 trials are kept" in (tmp_path / "log").read_text()
