"""What goes wrong in a federation: replies that are no numbers, kills, torn files, full disks."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from local_scenes import far, normalized_model, pictures, plain_model
from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, DiskError, LockedError
from gradveil.core.types import Batch, Update
from gradveil.defenses.gaussian import Gaussian
from gradveil.experiment import journal
from gradveil.models import load_weights
from gradveil.train import federated as local
from gradveil.train import folder as folders
from gradveil.train.client import Reply
from gradveil.train.federated import train_federation
from gradveil.train.server_rounds import fits
from gradveil.train.settings import Federation
from gradveil.train.state import RoundResult

DATA, JUDGED = pictures(), pictures(6, seed=1)
FEDERATION = Federation(clients=4, per_round=3, rounds=8, batch_size=4, momentum=0.9, batchnorm="batch-shared")


@dataclass(frozen=True)
class Flaky(Defense):
    """Sends no numbers, this often."""

    share: float
    value: float = float("nan")

    def update(self, update: Update, rng: Generator) -> Update:
        bad = bool(torch.rand(1, generator=rng) < self.share)
        return {name: u * self.value for name, u in update.items()} if bad else update


@dataclass(frozen=True)
class FlakyPictures(Defense):
    share: float

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        bad = bool(torch.rand(1, generator=rng) < self.share)
        return Batch(batch.images / 0 if bad else batch.images, batch.labels)


@pytest.mark.parametrize("defense", [Flaky(0.4), Flaky(0.4, float("inf")), FlakyPictures(0.4)])
@pytest.mark.parametrize("topology", ["central", "gossip"])
@pytest.mark.parametrize("method", ["fedsgd", "fedavg"])
def test_who_sends_no_numbers_is_left_out_and_named(defense: Defense, topology: str, method: str) -> None:
    federation = Federation(clients=4, rounds=6, batch_size=6, topology=topology, method=method)  # type: ignore[arg-type]
    got = train_federation(plain_model(), DATA, JUDGED, federation, defense)
    assert 0 < sum(one.dropped for one in got.curve) < 24
    for one in got.curve:
        assert one.dropped == len(one.names)
        assert set(one.names) <= set(federation.names)
        assert one.void == (one.dropped == 4)
    assert all(bool(x.isfinite().all()) for x in got.model.state_dict().values())
    assert far(got.model, plain_model()) > 1e-4


@pytest.mark.parametrize("topology", ["central", "gossip"])
def test_a_round_in_which_nobody_is_left_is_void(topology: str) -> None:
    federation = Federation(clients=3, rounds=2, batch_size=4, topology=topology)  # type: ignore[arg-type]
    got = train_federation(plain_model(), DATA, JUDGED, federation, Flaky(2.0))
    assert [(one.void, one.dropped) for one in got.curve] == [(True, 3), (True, 3)]
    assert far(got.model, plain_model()) < 1e-7


def test_a_huge_but_finite_update_does_not_end_the_model() -> None:
    federation = Federation(clients=3, rounds=2, batch_size=8)
    got = train_federation(plain_model(), DATA, JUDGED, federation, Flaky(2.0, 3e38))
    assert all(bool(x.isfinite().all()) for x in got.model.state_dict().values())


def test_hostile_replies_do_not_fit() -> None:
    params = {"a": torch.zeros(2, 3), "b": torch.zeros(2)}
    good = {"a": torch.ones(2, 3), "b": torch.ones(2)}

    def reply(update: dict[str, torch.Tensor], statistics: dict[str, torch.Tensor] | None = None) -> Reply:
        return Reply(update=update, statistics=statistics or {}, examples=1, loss=torch.zeros(()))

    assert fits(reply(good), params)
    rng = torch.Generator().manual_seed(0)
    for turn in range(200):
        name, kind = ("a", "b")[turn % 2], turn % 5
        x = good[name].clone()
        place = int(torch.randint(x.numel(), (1,), generator=rng))
        if kind < 3:
            x.view(-1)[place] = (float("nan"), float("inf"), -float("inf"))[kind]
        bad = {**good, name: x} if kind < 3 else {**good, name: x[None]} if kind == 3 else {name: x}
        assert not fits(reply(bad), params)
    assert not fits(reply(good, {"norm.var": torch.tensor([float("nan")])}), params)


@pytest.mark.parametrize(
    "data",
    [
        Batch(DATA.images[:, 0], DATA.labels),
        Batch(DATA.images[:-1], DATA.labels),
        Batch(DATA.images / 0, DATA.labels),
        Batch(DATA.images[:2], DATA.labels[:2]),
        Batch(DATA.images[..., :3], DATA.labels),
        Batch(DATA.images, DATA.labels[:, :2]),
    ],
)
def test_data_of_the_wrong_shape_is_refused_before_anything_is_written(data: Batch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train_federation(plain_model(), data, JUDGED, FEDERATION, Defense(), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


def run(folder: Path | None, kill_at: int | None = None, **more: Any):
    def heard(result: RoundResult) -> None:
        if result.round == kill_at:
            raise Killed

    checkpoints = (2, 8) if folder else ()
    federation = replace(FEDERATION, **more.pop("settings", {}))
    return train_federation(
        normalized_model(), DATA, JUDGED, federation, more.pop("defense", Defense()),
        folder=folder, checkpoints=checkpoints, evaluate_every=2, on_round=heard, **more,
    )  # fmt: skip


@dataclass(frozen=True)
class DiesInside(Defense):
    """A client that ends the process in the middle of its round."""

    left: list[int]

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        self.left[0] -= 1
        if self.left[0] == 0:
            raise Killed
        return batch

    def __repr__(self) -> str:
        return "DiesInside()"


@pytest.mark.parametrize(
    ("every", "topology", "method"),
    [
        (0.0, "central", "fedavg"),
        (0.0, "gossip", "fedsgd"),
        (1000.0, "central", "fedsgd"),
        (1000.0, "gossip", "fedavg"),
    ],
)
def test_a_killed_run_ends_with_the_same_bits(
    every: float, topology: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SAVE_EVERY", every)
    settings: dict[str, Any] = {"topology": topology, "method": method, "per_round": None}
    whole = run(tmp_path / "whole", settings=settings)
    for kill_at in (1, 5):
        with pytest.raises(Killed):
            run(tmp_path / "killed", kill_at, settings=settings)
    got = run(tmp_path / "killed", settings=settings)
    assert far(got.model, whole.model) == 0
    assert [(a.round, a.loss, a.accuracy) for a in got.curve] == [(b.round, b.loss, b.accuracy) for b in whole.curve]
    for name in ("round-000002.safetensors", "round-000008.safetensors"):
        first, second = ((tmp_path / run / "checkpoints" / name).read_bytes() for run in ("whole", "killed"))
        assert first == second


def test_the_noise_of_a_round_that_is_played_again_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two noises on one update the mean has less. A file has tensors by name, and a model has another order."""
    monkeypatch.setattr(local, "SAVE_EVERY", 0.0)
    assert (names := [name for name, _ in normalized_model().named_parameters()]) != sorted(names)
    noisy = Gaussian(scale=0.1)
    whole = run(tmp_path / "whole", defense=noisy)
    with pytest.raises(Killed):
        run(tmp_path / "killed", 3, defense=noisy)
    assert far(run(tmp_path / "killed", defense=noisy).model, whole.model) == 0


def test_a_kill_inside_a_round_and_a_torn_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SAVE_EVERY", 0.0)
    whole = run(tmp_path / "whole", defense=DiesInside([10**6]))
    with pytest.raises(Killed):
        run(tmp_path / "run", defense=DiesInside([20]))
    path = tmp_path / "run" / "journal.jsonl"
    content = path.read_bytes()
    kept = len(journal.read(path))
    assert 0 < kept < 8
    path.write_bytes(content + content.splitlines()[-1][:37])
    got = run(tmp_path / "run", defense=DiesInside([10**6]))
    assert far(got.model, whole.model) == 0
    assert len(got.curve) == 8


def test_error_feedback_is_remembered_across_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradveil.defenses.topk import TopK

    monkeypatch.setattr(local, "SAVE_EVERY", 0.0)
    how: dict[str, Any] = {"defense": TopK(keep=0.1), "settings": {"error_feedback": True}}
    whole = run(None, **how)
    with pytest.raises(Killed):
        run(tmp_path / "run", 5, **how)
    assert far(run(tmp_path / "run", **how).model, whole.model) == 0
    assert far(run(None, defense=TopK(keep=0.1)).model, whole.model) > 1e-3


def test_a_finished_run_is_read_back_and_checkpoints_are_weights(tmp_path: Path) -> None:
    first = run(tmp_path / "run")
    again = run(tmp_path / "run")
    assert far(first.model, again.model) == 0
    assert first.curve == again.curve
    model = normalized_model()
    load_weights(model, first.checkpoints[8])
    assert far(model, first.model) == 0
    document = json.loads((tmp_path / "run/provenance.json").read_text())
    assert document["finished"]
    assert len(document["resumed"]) == 1


def test_another_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"holds another run \(federation.rate is 0.1 there, 0.2 here\)"):
        run(tmp_path / "run", settings={"rate": 0.2})
    monkeypatch.setattr(DATA.images, "data", pictures(seed=5).images)
    with pytest.raises(ConfigError, match="data_sha256 is not the same"):
        run(tmp_path / "run")
    monkeypatch.undo()
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not the folder of a training run"):
        run(strange)


def test_a_changed_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SAVE_EVERY", 0.0)
    with pytest.raises(Killed):
        run(tmp_path / "run", 3)
    path = tmp_path / "run/state.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="changed since it was written"):
        run(tmp_path / "run")
    path.write_bytes(content[:-3])
    with pytest.raises(ConfigError, match="cannot be read"):
        run(tmp_path / "run")


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SAVE_EVERY", 0.0)
    whole, write, left = run(None), folders.write_whole, [5]

    def full(path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(folders, "write_whole", full)
    with pytest.raises(DiskError, match=r"No space left on device, 4 rounds are kept, make room and give the same"):
        run(tmp_path / "run")
    monkeypatch.setattr(folders, "write_whole", write)
    assert far(run(tmp_path / "run").model, whole.model) == 0


def test_two_writers(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with journal.Journal(tmp_path / "run/journal.jsonl"), pytest.raises(LockedError):
        run(tmp_path / "run")
