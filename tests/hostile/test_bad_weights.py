"""Weights files whose headers lie, whose tensors are not the model's, or whose numbers are none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gradveil.models import MODELS
from hostile.forged import npz, safetensors, whole


@pytest.fixture(autouse=True)
def data() -> None:
    """Four pictures of nine pixels: building up to the weights takes no time."""
    npz(
        Path("d.npz"), {"images.npy": whole(np.zeros((4, 3, 3), np.uint8)), "labels.npy": whole(np.array([0, 1, 0, 1]))}
    )


def state() -> dict[str, Tensor]:
    return dict(MODELS["mlp"](classes=2, shape=(1, 3, 3), seed=1, mean=(0.0,), std=(1.0,)).state_dict())


def command(file: str) -> tuple[str, ...]:
    return ("audit", "--data", "d.npz", "--model", "mlp", "--images", "1", "--weights", file)


def entry(begin: int, end: int, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
TWICE = json.dumps({"a": entry(0, 4)}).encode()
HEADERS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "header claims 0 bytes"),
    "seven bytes": (b"\0" * 7, "header claims 0 bytes"),
    "no header": (bytes(8), "header claims 0 bytes"),
    "beyond the file": (safetensors({"a": entry(0, 4)}, bytes(4), claimed=5000), "header claims 5,000 bytes"),
    "one byte beyond": (safetensors({}, claimed=3), "header claims 3 bytes"),
    "100 MB": (safetensors({}, claimed=10**8 + 1), "header claims 100,000,001 bytes, the limit"),
    "2^64": (b"\xff" * 8 + b"{}", "header claims 18,446,744,073,709,551,615 bytes, the limit"),
    "a byte short": (safetensors({"a": entry(0, 4)}, bytes(4), claimed=10), "not JSON"),
    "no JSON": (safetensors(b"not json"), "not JSON"),
    "not even text": (safetensors(b"\xff\xfe\x00"), "not JSON"),
    "a list": (safetensors([]), "no table of tensors"),
    "a number": (safetensors(1), "no table of tensors"),
    "deep": (safetensors(DEEP), "not JSON"),
    "a tensor twice": (safetensors(TWICE[:-1] + b"," + TWICE[1:], bytes(4)), "'a' is there twice"),
    "a tensor that is a number": (safetensors({"a": 1}), "a: expected dtype"),
    "a tensor without a shape": (safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4)), "a: expected"),
    "a tensor with more": (safetensors({"a": {**entry(0, 4), "code": "x"}}, bytes(4)), "a: expected dtype"),
    "an unknown type": (safetensors({"a": entry(0, 4, dtype="object")}, bytes(4)), "a: the type 'object'"),
    "a type that is a table": (safetensors({"a": entry(0, 4, dtype="F8_E4M3")}, bytes(4)), "a: the type 'F8_E4M3'"),
    "a side below zero": (safetensors({"a": entry(0, 4, (-1, -1))}, bytes(4)), "a: shape and data_offsets"),
    "a side with a point": (safetensors({"a": entry(0, 4, (1.0,))}, bytes(4)), "a: shape and data_offsets"),
    "a side that is true": (safetensors({"a": entry(0, 4, (True,))}, bytes(4)), "a: shape and data_offsets"),
    "a shape that is text": (safetensors({"a": {**entry(0, 4), "shape": "1"}}, bytes(4)), "a: shape and data_offsets"),
    "a shape that wraps": (safetensors({"a": entry(0, 4, (2**62, 4))}, bytes(4)), "a: F32 of (4611686018427387904, 4)"),
    "a shape of 2^64": (safetensors({"a": entry(0, 0, (2**64,))}), "a: shape and data_offsets"),
    "a shape too large": (safetensors({"a": entry(0, 4, (2,))}, bytes(4)), "a: F32 of (2,) does not take the 4 bytes"),
    "a shape too small": (safetensors({"a": entry(0, 8, (1,))}, bytes(8)), "a: F32 of (1,) does not take the 8 bytes"),
    "offsets backwards": (safetensors({"a": entry(4, 0)}, bytes(4)), "a: shape and data_offsets"),
    "offsets below zero": (safetensors({"a": entry(-4, 0)}, bytes(4)), "a: shape and data_offsets"),
    "three offsets": (safetensors({"a": {**entry(0, 4), "data_offsets": [0, 2, 4]}}, bytes(4)), "a: shape and"),
    "offsets beyond the file": (safetensors({"a": entry(0, 400, (100,))}, bytes(4)), "its tensors end at byte 400"),
    "overlapping": (safetensors({"a": entry(0, 8, (2,)), "b": entry(4, 8)}, bytes(8)), "b: its data begins at byte 4"),
    "the same bytes": (safetensors({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4)), "b: its data begins at byte 0"),
    "a hole": (safetensors({"a": entry(0, 4), "b": entry(8, 12)}, bytes(12)), "b: its data begins at byte 8"),
    "bytes of nobody": (safetensors({"a": entry(0, 4)}, bytes(400)), "the file holds 400"),
    "a pickle": (b"\x80\x04\x95" + bytes(100), "w.safetensors"),
    "a zip": (b"PK\x03\x04" + bytes(100), "w.safetensors"),
    "a huge number": (safetensors(b'{"a": {"shape": [' + b"9" * 5000 + b"]}}"), "not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_lies(kind: str, refused) -> None:
    content, naming = HEADERS[kind]
    Path("w.safetensors").write_bytes(content)
    line = refused(*command("w.safetensors"), naming=naming)
    assert "w.safetensors: " in line


def one(name: str, value: float, count: int = 1) -> dict[str, Tensor]:
    tensors = state()
    tensors[name].view(-1)[:count] = value
    return tensors


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"other.{name}": tensor for name, tensor in tensors.items()}


FIRST = next(name for name, tensor in state().items() if tensor.ndim == 2)
SIZE = state()[FIRST].numel()
TENSORS: dict[str, tuple[dict[str, Tensor], str]] = {
    "NaN": (one(FIRST, float("nan"), 3), f"{FIRST}: 3 non-finite of {SIZE}"),
    "infinite": (one(FIRST, float("inf")), f"{FIRST}: 1 non-finite of {SIZE}"),
    "beyond float32": (
        {name: tensor.double() * (1e300 if name == FIRST else 1) for name, tensor in state().items()},
        f"{FIRST}: {SIZE} non-finite of {SIZE}",
    ),
    "whole numbers": (
        state() | {FIRST: torch.zeros_like(state()[FIRST], dtype=torch.int64)},
        f"{FIRST}: is torch.int64",
    ),
    "bits": (state() | {FIRST: torch.zeros_like(state()[FIRST], dtype=torch.bool)}, f"{FIRST}: is torch.bool"),
    "another shape": (state() | {FIRST: state()[FIRST].T.contiguous()}, "1 of another shape"),
    "one number instead": (state() | {FIRST: torch.zeros(())}, "1 of another shape"),
    "none": ({}, "missing"),
    "one missing": ({k: v for k, v in state().items() if k != FIRST}, f"1 missing: {FIRST}"),
    "one more": (state() | {"head.weight": torch.zeros(3)}, "1 unexpected: head.weight"),
    "all with a prefix": (renamed(state()), "missing"),
    "a thousand more": (state() | {f"x{k:04}": torch.zeros(1) for k in range(1000)}, "x0004 and 995 more"),
    "names that steer a terminal": (state() | {"\x1b[2J\nerror: forged": torch.zeros(1)}, "1 unexpected"),
    "a name of a kilometer": (state() | {"a" * 100_000: torch.zeros(1)}, "1 unexpected"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_are_not_the_models(kind: str, refused) -> None:
    tensors, naming = TENSORS[kind]
    save_file(tensors, "w.safetensors")
    line = refused(*command("w.safetensors"), naming=naming)
    assert "w.safetensors: " in line


@pytest.mark.parametrize(
    "file", ["gone.safetensors", "w.npz", "w.h5", "w.onnx", "w", "folder.safetensors", "pipe.safetensors", "http:/x/w"]
)
def test_other_files(file: str, refused) -> None:
    Path("folder.safetensors").mkdir()
    os.mkfifo("pipe.safetensors")
    refused(*command(file), naming=file)
