"""Every field of a capture that cannot be right is named in one line that says what was expected."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from gradveil.capture import Capture, load, save
from gradveil.capture import read as reader
from gradveil.capture.document import LONGEST, parse_document
from gradveil.capture.format import CAPTURE, DOCUMENT, KIND
from gradveil.capture.layout import Described, check_layout
from gradveil.capture.read import content_hash
from gradveil.core.errors import ConfigError

SOUND: dict[str, Any] = {
    "version": 1, "round": 0, "training": {}, "examples": {"a": 1}, "shape": [1, 2, 2], "classes": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("version", 3, "version: is 3, this gradveil reads 1 and 2"),
        ("version", "1", "version: is 1, this gradveil reads 1"),
        ("round", -1, "round: expected a whole number from 0"),
        ("round", True, "round: expected a whole number from 0"),
        ("training", [], "training: expected a table"),
        ("training", {"stesp": 1}, "did you mean 'steps'"),
        ("training", {"steps": 0}, "training.steps: expected a whole number from 1"),
        ("training", {"rate": 0}, "training.rate: expected a number above 0"),
        ("training", {"rate": "x"}, "training.rate: expected a finite number"),
        ("training", {"momentum": -1}, "training.momentum: expected a number of at least 0"),
        ("training", {"batchnorm": "off"}, "training.batchnorm: expected one of eval, batch, batch-shared"),
        ("training", {"batch_size": 0}, "training.batch_size: expected a whole number from 1"),
        ("training", {"optimizer": "adam"}, "unknown name 'optimizer'"),  # a file of version 1 knows of none
        ("examples", {}, "examples: names 0 clients"),
        ("examples", {"../x": 1}, "is no name for a client"),
        ("examples", {"a": -1}, "examples.a: expected a whole number from 0"),
        ("shape", [2, 2], "shape: expected [channels, height, width]"),
        ("shape", [10, 10_000, 10_000], "is a picture of more than"),
        ("classes", 0, "classes: expected a whole number from 1"),
        ("normalization", [[0.5]], "normalization: expected [mean, deviation]"),
        ("normalization", [[0.5], [0.0]], "normalization: expected 1 means and 1 deviations above 0"),
        ("normalization", [[1e40], [1.0]], "normalization: expected a finite number"),
        ("aggregate", 0, "aggregate: expected a whole number from 1"),
        ("metrics", {"a": []}, "metrics.a: expected a table"),
        ("metrics", {"a": {"loss": "x"}}, "metrics.a.loss: expected a finite number"),
        ("model", 3, "model: expected a printable text"),
        ("producer", "\x1b[2J", "producer: expected a printable text"),
        ("labels", {}, "unknown name 'labels'"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_document(json.dumps({**SOUND, key: value}), "x")
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"optimizer": "adma"}, "training.optimizer: expected one of sgd, adam, adamw, rmsprop, adagrad"),
        ({"optimizer": "adam", "momentum": 0.9}, "training.momentum: adam has none"),
        ({"nesterov": 1}, "training.nesterov: expected true or false"),
        ({"beta1": 1}, "training.beta1: expected a number below 1"),
        ({"label_smoothing": 2}, "training.label_smoothing: expected a number from 0 to 1"),
        ({"epochs": -1}, "training.epochs: expected a whole number from 0"),
        ({"epochs": 10**5, "batch_size": 1}, "training.epochs: is more than 100,000 steps"),
        ({"class_weights": 3}, "training.class_weights: expected a list"),
        ({"class_weights": [1, 2]}, "training.class_weights: has 2 numbers for 3 classes"),
        ({"augmentation": "x"}, "unknown name 'augmentation'"),
    ],
)
def test_wrong_settings_of_version_2_are_named(training: dict[str, Any], expected: str) -> None:
    document = SOUND | {"version": 2, "training": training, "examples": {"a": 2}}
    with pytest.raises(ConfigError) as raised:
        parse_document(json.dumps(document), "x")
    assert expected in str(raised.value)


@pytest.mark.parametrize("key", SOUND)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"x: {key}: is missing"):
        parse_document(json.dumps({name: value for name, value in SOUND.items() if name != key}), "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{", "is not JSON"), ('{"a": NaN}', "NaN is no number"), ('{"a": 1, "a": 2}', "is not JSON"), ("[]", "a table"),
     (" " * (LONGEST + 1), "characters, the limit is")],
)  # fmt: skip
def test_a_text_that_is_no_document_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_document(text, "x")


def test_what_is_left_out_has_its_default() -> None:
    found = parse_document(json.dumps({**SOUND, "training": {"batch_size": None}}), "x")
    assert (found["aggregate"], found["normalization"], found["metrics"], found["model"]) == (1, None, {}, "")
    assert found["training"].batch_size is None


WEIGHT, UPDATE = {"weights/w": Described("F32", (3, 4))}, {"updates/a/w": Described("F32", (3, 4))}


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"other/w": Described("F32", (3,))}, "is no name of a capture"),
        ({"weights/../w": Described("F32", (3,))}, "is no name of a capture"),
        ({"weights/w": Described("F32", (1,) * 9)}, "has 9 axes, the limit is 8"),
        (WEIGHT, "updates/: no tensor is called so"),
        (UPDATE, "weights/: no tensor is called so"),
        ({**WEIGHT, **UPDATE, "weights/v": Described("U8", (3,))}, "weights/v: is of type U8"),
        ({**WEIGHT, "updates/b/w": WEIGHT["weights/w"]}, "examples: a has a number but no update"),
        ({**WEIGHT, **UPDATE, "updates/b/w": WEIGHT["weights/w"]}, "b has an update but no number in examples"),
        ({**WEIGHT, **UPDATE, "labels/b": Described("I64", (1,))}, "labels/b: has no update"),
        ({**WEIGHT, **UPDATE, "updates/a/v": Described("F32", (3,))}, "updates/a/v: no weight is called so"),
        ({**WEIGHT, "updates/a/w": Described("F32", (2, 3, 4))}, "has the shape (2, 3, 4), the weight has (3, 4)"),
        ({**WEIGHT, "updates/a/w": Described("I64", (3, 4))}, "updates/a/w: is of type I64"),
        ({**WEIGHT, **UPDATE, "statistics/a/bn.mean": Described("F32", (3,))}, "no buffer of the model"),
        ({**WEIGHT, **UPDATE, "weights/bn.running_mean": Described("F32", (3,)),
          "statistics/a/bn.mean": Described("U8", (3,))}, "statistics/a/bn.mean: is of type U8"),
        ({**WEIGHT, **UPDATE, "labels/a": Described("I64", (2,))}, "expected I64 of (1,) or F32 of (1, 3)"),
        ({**WEIGHT, **UPDATE, "labels/a": Described("F32", (1,))}, "expected I64 of (1,) or F32 of (1, 3)"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_belong_are_named(tensors: dict[str, Described], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_layout(tensors, parse_document(json.dumps(SOUND), "x"), "x")
    assert expected in str(raised.value)


def test_clients_send_the_same_parameters() -> None:
    both = {**WEIGHT, "weights/v": Described("F32", (2,))}
    sent = {**both, **UPDATE, "updates/b/w": WEIGHT["weights/w"], "updates/b/v": Described("F32", (2,))}
    document = parse_document(json.dumps({**SOUND, "examples": {"a": 1, "b": 1}}), "x")
    with pytest.raises(ConfigError, match="v is in the update of only one of a and b"):
        check_layout(sent, document, "x")


@pytest.mark.parametrize(
    ("name", "shape", "hint"),
    [("ww", (3, 4), "did you mean 'w'"), ("qqqq", (5,), "only 'bias' has its shape"), ("qqqq", (9,), "renamed")],
)
def test_a_name_that_is_not_there_comes_with_a_hint(name: str, shape: tuple[int, ...], hint: str) -> None:
    weights = {**WEIGHT, "weights/bias": Described("F32", (5,))}
    with pytest.raises(ConfigError, match=hint):
        check_layout(
            {**weights, f"updates/a/{name}": Described("F32", shape)}, parse_document(json.dumps(SOUND), "x"), "x"
        )


def write(path: Path, **tensors: np.ndarray) -> Path:
    sent = {name.replace("_", "/"): tensor for name, tensor in tensors.items()}
    save_file(sent, path, {KIND: CAPTURE, DOCUMENT: json.dumps(SOUND)})
    return path


ONES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"weights_w": ONES * np.nan, "updates_a_w": ONES}, "weights/w: 12 of 12 numbers are not finite, save the"),
        ({"weights_w": ONES, "updates_a_w": ONES * np.inf}, "updates/a/w: 12 of 12 numbers .* leave this client out"),
        ({"weights_w": ONES, "updates_a_w": ONES, "labels_a": np.array([3])}, "3 is no class, number them from 0 to 2"),
    ],
)
def test_numbers_that_cannot_be_are_refused(tensors: dict[str, np.ndarray], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        load(write(tmp_path / "x.safetensors", **tensors))


def test_an_empty_tensor_is_read(tmp_path: Path) -> None:
    empty = np.ones((0, 4), np.float32)
    found = load(write(tmp_path / "x.safetensors", weights_w=ONES, weights_v=empty, updates_a_w=ONES))
    assert found.weights["v"].shape == (0, 4)
    assert load(found.save(tmp_path / "y.safetensors")).weights["v"].shape == (0, 4)


def test_a_file_that_is_no_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load("\0")
    save_file({"x": ONES}, tmp_path / "other.safetensors")
    with pytest.raises(ConfigError, match="is not in its metadata"):
        load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("name", "limit", "expected"), [("LARGEST", 10, "bytes, the limit is 10"), ("MOST_TENSORS", 1, "2 tensors")]
)
def test_limits_are_held_before_anything_is_read(
    name: str, limit: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.safetensors", weights_w=ONES, updates_a_w=ONES)
    monkeypatch.setattr(reader, name, limit)
    with pytest.raises(ConfigError, match=expected):
        load(path)


def test_a_capture_too_large_to_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load(write(tmp_path / "x.safetensors", weights_w=ONES, updates_a_w=ONES))
    monkeypatch.setattr(reader, "LARGEST", 2**24 + 10)
    with pytest.raises(ConfigError, match="save fewer clients"):
        save(tmp_path / "y.safetensors", found)
    assert not (tmp_path / "y.safetensors").exists()


def shortened(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4)


def test_a_file_that_loses_its_end_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.safetensors", weights_w=ONES, updates_a_w=ONES)
    header = reader.read_whole_header(path, path)
    shortened(path)
    monkeypatch.setattr(reader, "read_whole_header", lambda *_: header)
    with pytest.raises(ConfigError, match="the file ends before it, copy it again"):
        load(path)


@pytest.mark.parametrize("how", [torch.complex64, torch.uint8])
def test_types_that_the_format_does_not_know_are_not_written(how: torch.dtype, tmp_path: Path) -> None:
    found = load(write(tmp_path / "x.safetensors", weights_w=ONES, updates_a_w=ONES))
    with pytest.raises(ConfigError, match="convert it to float32"):
        content_hash(Capture(**{**vars(found), "weights": {"w": torch.ones(3, 4, dtype=how)}}))


@pytest.mark.parametrize("made", [lambda: Capture.simulate(model="mlp", dataset="digits", options={"size": 8})])
def test_a_capture_saves_and_loads_itself(made: Callable[[], Capture], tmp_path: Path) -> None:
    one = made()
    path = one.save(tmp_path / "x.safetensors")
    assert content_hash(Capture.load(path)) == content_hash(one)
    assert os.stat(path).st_mode & 0o077 == 0
