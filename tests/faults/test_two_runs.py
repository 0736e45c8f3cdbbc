"""Two runs that want one folder: at the same time, or one after the other with something changed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from children import FOREVER, forked, records, table, until
from toys import Noise, audit, pictures, scenario

from gradveil.audit.audit import Audit, run_audit
from gradveil.cli import main
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, LockedError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

LOCKED = 4
COMMAND = ("audit", "--data", "digits", "--model", "mlp", "--attack", "linear", "--lineup", "off", "--quiet", "--out")


@dataclass(frozen=True, kw_only=True)
class Sleepy(Noise):
    seconds: float = field(default=0.0, repr=False)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        time.sleep(self.seconds)
        return super().reconstruct(seen, seed, compute)


def small(second: Noise) -> Audit:
    return audit({"a": Noise(), "b": second}, {"none": Defense()})


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_the_second_of_two_leaves_at_once_and_the_lock_of_a_dead_one_clears_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    first = forked(partial(run_audit, small(Sleepy(seconds=FOREVER)), folder), tmp_path / "log")
    until(lambda: len(records(folder)) == 3)
    monkeypatch.setattr("gradveil.config.build", lambda config: small(Sleepy()))
    before = tree(folder)
    with pytest.raises(SystemExit) as left:
        main([*COMMAND, str(folder)])
    assert left.value.code == LOCKED
    assert "another run is writing here, wait for it or choose another --out" in capfd.readouterr().err
    assert tree(folder) == before
    assert first.is_running()  # it was not waited for
    first.kill(signal.SIGKILL)
    first.wait()
    with pytest.raises(SystemExit) as left:
        main([*COMMAND, str(folder)])
    assert not left.value.code
    assert len(records(folder)) == 6


def test_of_many_at_once_one_writes(tmp_path: Path) -> None:
    """All start together; whoever finds it locked leaves, and every trial is there once."""
    folder = tmp_path / "run"

    def one_of_many() -> None:
        try:
            run_audit(audit({"a": Noise(), "b": Noise()}, clients=6), folder)
        except LockedError as error:
            raise SystemExit(LOCKED) from error

    codes = {child.wait() for child in [forked(one_of_many, tmp_path / str(n)) for n in range(8)]}
    assert codes <= {0, LOCKED}
    assert 0 in codes
    run_audit(audit({"a": Noise(), "b": Noise()}, clients=6), folder)
    run_audit(audit({"a": Noise(), "b": Noise()}, clients=6), tmp_path / "alone")
    assert table(folder) == table(tmp_path / "alone")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["config.toml", "provenance.json"])
def test_one_changed_byte_of_what_describes_a_run_is_refused_by_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_audit(small(Noise()), folder)
    content, rng = (folder / name).read_bytes(), random.Random(0)
    for _ in range(150):
        bad = bytearray(content)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(bad)
        before = tree(folder)
        with pytest.raises(ConfigError, match=rf"{name}: |holds another run|provenance\.json: "):
            run_audit(small(Noise()), folder)
        assert tree(folder) == before
    (folder / name).write_bytes(content)
    run_audit(small(Noise()), folder)


@pytest.mark.parametrize("name", ["config.toml", "provenance.json"])
def test_a_begun_run_without_its_description_is_refused(name: str, tmp_path: Path) -> None:
    run_audit(small(Noise()), tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    with pytest.raises(ConfigError, match=r"is missing|not the folder of a run"):
        run_audit(small(Noise()), tmp_path / "run")


def full() -> Audit:
    """With everything that a run depends on."""
    plain, others = small(Noise()), pictures(4, 7)
    public = Batch(pictures(3, 5), torch.eye(4)[:3])
    larger = replace(scenario(3, 2), name="larger")
    early = scenario().model
    return replace(plain, scenario=replace(plain.scenario, public=public), gallery=others, also=(larger,), early=early)


PARTS: dict[str, Callable[[Audit], torch.Tensor]] = {
    "model": lambda a: next(a.scenario.model.parameters()).data,
    "early model": lambda a: next(a.early.parameters()).data,  # type: ignore[union-attr]
    "private pictures": lambda a: a.scenario.private.images,
    "private labels": lambda a: a.scenario.private.labels,
    "public pictures": lambda a: a.scenario.public.images,  # type: ignore[union-attr]
    "gallery": lambda a: a.gallery,  # type: ignore[return-value]
    "pictures of a variation": lambda a: a.also[0].private.images,
}


@pytest.mark.parametrize("part", PARTS)
def test_one_changed_bit_of_model_or_data_is_refused_by_name(part: str, tmp_path: Path) -> None:
    run_audit(full(), tmp_path / "run")
    before = tree(tmp_path)
    changed = full()
    bits = PARTS[part](changed).view(torch.int32).flatten()
    bits[-1] ^= 1
    with pytest.raises(ConfigError, match=rf"{'model' if 'model' in part else 'data'}_sha256 is not the same"):
        run_audit(changed, tmp_path / "run")
    assert tree(tmp_path) == before
    run_audit(full(), tmp_path / "run")
