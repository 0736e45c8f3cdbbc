"""An audit on Ray: the table of an audit here, whatever happens to the workers."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from children import records, table
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.cli import main
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.experiment.parallel.pool import Pool, PoolError

pytestmark = pytest.mark.filterwarnings("ignore")  # of Ray's own, which leaves processes to be collected
PLAIN = {"none": Defense()}


class Pairs(Compute):
    """Two clients to a shard."""

    @property
    def shard(self) -> int:
        return 2


@dataclass(frozen=True, kw_only=True)
class Deadly(Noise):
    """Kills the process that meets one client, so many times."""

    notes: Path
    times: int
    client: str = "c0002"

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        met = len(list(self.notes.iterdir()))
        if self.client in seen.names:
            (self.notes / str(met)).touch()
            if met < self.times:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().reconstruct(seen, seed, compute)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="ray is not installed: pip install gradveil[ray]")
    with pytest.MonkeyPatch.context() as patch:  # workers must find the toys
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        with Pool(ray="local").connected() as ray:
            yield ray
        gc.collect()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


@pytest.mark.slow
def test_a_worker_that_is_killed_is_tried_again_and_nothing_shows(cluster: Any, tmp_path: Path, notes: Path) -> None:
    held = {"clients": 8, "lineup": "auto"}
    run_audit(audit({"a": Noise()}, PLAIN, **held), tmp_path / "sound", Pairs())
    run_audit(audit({"a": Deadly(notes=notes, times=1)}, PLAIN, **held), tmp_path / "run", Pairs(ray="local"))
    assert table(tmp_path / "run") == table(tmp_path / "sound")
    assert len(list(notes.iterdir())) == 2


@pytest.mark.slow
def test_a_shard_that_no_worker_survives_fails_with_its_reason(cluster: Any, tmp_path: Path, notes: Path) -> None:
    run_audit(audit({"a": Deadly(notes=notes, times=99)}, PLAIN, clients=8), tmp_path / "run", Pairs(ray="local"))
    failed = [record for record in records(tmp_path / "run") if record.status == "failed"]
    assert {record.client for record in failed} == {"c0002", "c0003"}
    assert all("its process died 3 times" in record.reason for record in failed)
    assert len(list(notes.iterdir())) == 3


def unlucky(job: int) -> int:
    raise ValueError("no luck")


@pytest.mark.slow
def test_an_error_of_a_task_on_ray_is_told_or_answered_for(cluster: Any) -> None:
    with pytest.raises(PoolError, match="ValueError: no luck"):
        list(Pool(ray="local").each(unlucky, [1]))
    assert list(Pool(ray="local").each(unlucky, [1], lambda job, why: -job)) == [(1, -1)]


@pytest.mark.slow
def test_the_command_with_a_model_of_the_users_own(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is in a file that no worker can import."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MODEL)
    common = [
        "audit",
        "--model",
        "mine.py:build",
        "--attack",
        "linear",
        "--images",
        "3",
        "--device",
        "cpu",
        "--quiet",
        "--lineup",
        "20",
    ]
    for how in (["--ray", "local"], ["--workers", "1"]):
        with pytest.raises(SystemExit, match=r"^0$"):
            main([*common, *how, "--out", how[0]])
    assert table(Path("--ray")) == table(Path("--workers"))
    assert all(record.status == "ok" for record in records(Path("--ray")))


MODEL = """
from torch import nn

class Own(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, classes)

    def forward(self, pictures):
        return self.layer(pictures.flatten(1))

def build(classes):
    return Own(classes)
"""


def test_ray_and_workers_exclude_each_other(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install gradveil[ray]")
    with pytest.raises(ConfigError, match="leave out `workers` or `ray`"):
        run_audit(audit({"a": Noise()}), tmp_path / "run", Compute(ray="local", workers=2))
    assert not (tmp_path / "run").exists()


def test_the_command_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["audit", "--ray", "local", "--workers", "2", "--out", str(tmp_path / "run")])
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "run").exists()
