"""A capture comes back as it was written, and what was not written by us is told so."""

from __future__ import annotations

import json
import stat
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor

from gradveil.capture import Capture, content_hash, load, save
from gradveil.capture.format import HASH
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining

RNG = torch.Generator().manual_seed(0)


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=RNG).to(dtype)


FULL = Capture(
    weights={"fc.weight": tensor(3, 2), "fc.bias": tensor(3), "bn.running_mean": tensor(2), "bn.n": torch.tensor(7)},
    updates={
        "client-0": {"fc.weight": tensor(3, 2, dtype=torch.float64), "fc.bias": tensor(3, dtype=torch.bfloat16)},
        "b.1": {"fc.weight": tensor(3, 2, dtype=torch.float16), "fc.bias": tensor(3)},
    },
    statistics={"client-0": {"bn.running_mean": tensor(2)}, "b.1": {"bn.mean": tensor(2)}},
    round=4,
    training=LocalTraining(steps=3, rate=0.1, batch_size=2, momentum=0.9, weight_decay=1e-4, batchnorm="batch-shared"),
    examples={"client-0": 2, "b.1": 0},
    shape=(1, 1, 2),
    classes=3,
    normalization=((0.1,), (0.3,)),
    model="mlp",
    defense="gaussian:scale=0.01",
    labels={"client-0": torch.tensor([0, 2])},
    metrics={"client-0": {"loss": 0.25}},
    producer="a test",
)


def same(one: Capture, other: Capture) -> None:
    mine, theirs = one.tensors(), other.tensors()
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert mine[name].dtype == theirs[name].dtype
        assert torch.equal(mine[name], theirs[name]), name
    empty = {"weights": {}, "updates": {}, "statistics": {}, "labels": {}}
    assert replace(one, **empty) == replace(other, **empty)


def test_round_trip_is_exact(tmp_path: Path) -> None:
    path = save(tmp_path / "round.safetensors", FULL)
    found = load(path)
    same(found, FULL)
    assert content_hash(found) == content_hash(FULL)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["round.safetensors"]
    with safe_open(path, framework="pt") as file:
        assert file.metadata()[HASH] == content_hash(FULL)


def test_views_and_tied_weights_are_written_as_they_look(tmp_path: Path) -> None:
    tied = tensor(4, 4)
    weights, updates = {"a": tied, "b": tied.T}, {"c": {"a": tied, "b": tied.T}}
    one = replace(FULL, weights=weights, updates=updates, examples={"c": 1}, statistics={}, labels={})
    found = load(save(tmp_path / "x.safetensors", one))
    assert torch.equal(found.weights["b"], tied.T)


def test_a_loss_that_is_no_number_comes_back_as_one(tmp_path: Path) -> None:
    found = load(save(tmp_path / "x.safetensors", replace(FULL, metrics={"b.1": {"loss": float("nan"), "n": 2.0}})))
    assert np.isnan(found.metrics["b.1"]["loss"])
    assert found.metrics["b.1"]["n"] == 2.0


def test_one_changed_bit_is_seen(tmp_path: Path) -> None:
    path = save(tmp_path / "x.safetensors", FULL)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x.safetensors: gradveil.sha256: the content was changed"):
        load(path)


def test_another_hand_needs_no_hash(tmp_path: Path) -> None:
    path = save(tmp_path / "x.safetensors", FULL)
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    header = json.loads(path.read_bytes()[8 : 8 + length])
    del header["__metadata__"][HASH]
    text = json.dumps(header).encode()
    (tmp_path / "y.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + path.read_bytes()[8 + length :])
    same(load(tmp_path / "y.safetensors"), FULL)


def test_numpy_and_safetensors_suffice(tmp_path: Path) -> None:
    sent, update = np.ones((3, 4), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    document = {"version": 1, "round": 0, "training": {}, "examples": {"a": 1}, "shape": [1, 2, 2], "classes": 3}
    metadata = {"gradveil.kind": "capture", "gradveil.capture": json.dumps(document)}
    path = tmp_path / "n.safetensors"
    save_file({"weights/w": sent, "updates/a/w": update}, path, metadata)
    found = load(path)
    assert found.training == LocalTraining()
    assert torch.equal(found.updates["a"]["w"], torch.from_numpy(update))


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    spoiled = {"client-0": {**FULL.updates["client-0"], "fc.bias": torch.tensor([0.0, float("inf"), 0.0])}}
    bad = (
        replace(FULL, updates=spoiled | {"b.1": FULL.updates["b.1"]}),
        replace(FULL, examples={"client-0": 2}),
        replace(FULL, classes=0),
        replace(FULL, updates={"../x": FULL.updates["b.1"]}, examples={"../x": 1}, statistics={}, labels={}),
        replace(FULL, normalization=((0.1,), (0.0,))),
        replace(FULL, labels={"client-0": torch.tensor([0, 1, 2])}),
    )
    for one in bad:
        with pytest.raises(ConfigError):
            save(tmp_path / "x.safetensors", one)
    assert not list(tmp_path.iterdir())


def test_a_renamed_layer_is_told_with_the_nearest(tmp_path: Path) -> None:
    update = {"client-0": {"fc.weights": tensor(3, 2), "fc.bias": tensor(3)}}
    one = replace(FULL, updates=update, examples={"client-0": 2}, statistics={})
    with pytest.raises(ConfigError, match=r"updates/client-0/fc.weights: .*did you mean 'fc.weight'"):
        save(tmp_path / "x.safetensors", one)


def test_a_file_with_a_hole_of_terabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ConfigError, match="the limit is"):
        load(path)
