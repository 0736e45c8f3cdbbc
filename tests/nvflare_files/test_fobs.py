"""Files of NVFlare, read without it: what its own code wrote (stored/make_fobs.py), and what somebody hostile wrote."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from stored.make_fobs import arrays

from gradveil.capture import load
from gradveil.capture.mode import describe_mode
from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.nvflare import convert
from gradveil.nvflare.fobs import read_exchanged

STORED = Path(__file__).parent / "stored"
SENT, STEP = arrays(0, 0.1), arrays(1, 1e-3)
PARAMETERS = {"conv.weight", "bn.weight", "fc.weight", "fc.bias"}
WHAT: dict[str, Any] = {"shape": (1, 8, 8), "classes": 3}


def as_arrays(tensors: Any) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", ["sent", "sections"])
def test_arrays_are_those_that_were_written(name: str) -> None:
    found = read_exchanged(STORED / f"{name}.fobs")
    assert found.kind == "WEIGHTS"
    for key, value in SENT.items():
        assert np.array_equal(found.data[key].numpy(), value)


def test_tensors_in_a_shareable_and_what_came_along() -> None:
    whole, difference = (read_exchanged(STORED / f"{name}.fobs") for name in ("whole", "difference"))
    assert np.array_equal(whole.data["fc.bias"].numpy(), SENT["fc.bias"] + STEP["fc.bias"])
    assert difference.meta["NUM_STEPS_CURRENT_ROUND"] == 3
    assert difference.meta["initial_metrics"] == {"accuracy": 0.5}


def test_a_round_becomes_a_capture(tmp_path: Path) -> None:
    """A difference and whole weights say the same, up to what float32 loses of the sum."""
    answers = {"site-1": STORED / "difference.fobs", "site-2": STORED / "whole.fobs"}
    found = convert(STORED / "sent.fobs", answers, examples={"site-1": 4}, **WHAT)
    for client, tolerance in (("site-1", 1e-7), ("site-2", 2e-7)):
        assert set(found.updates[client]) == PARAMETERS
        for name, update in found.updates[client].items():
            assert update.dtype == torch.float32
            assert np.allclose(update.numpy(), -STEP[name], rtol=0, atol=tolerance * abs(SENT[name]).max())
    assert (found.round, found.examples) == (2, {"site-1": 4, "site-2": 0})
    assert found.training == LocalTraining(steps=3, batchnorm="batch-shared")
    assert found.declared == {"batchnorm": "eval"}
    assert describe_mode(found, "site-1").endswith("(batch-shared, 3 forward passes by its counters)")
    assert found.metrics["site-1"]["accuracy"] == 0.5
    path = found.__class__.save(found, tmp_path / "round.safetensors")
    assert load(path).updates["site-1"].keys() == PARAMETERS


def test_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "round.safetensors"
    command = ["capture", "from-nvflare", str(STORED / "sent.fobs"), "--update", f"site-1={STORED / 'difference.fobs'}"]
    told = ["--shape", "1,8,8", "--classes", "3", "--examples", "site-1=5", "--training", "rate=0.1"]
    with pytest.raises(SystemExit) as ended:
        main([*command, *told, "--training", "epochs=2", "--out", str(out)])
    assert not ended.value.code
    found = load(out)
    assert (found.training.rate, found.training.epochs, found.examples) == (0.1, 2, {"site-1": 5})
    assert "1 clients, round 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sent", "answer", "said"),
    [
        ("difference", "difference", "is of kind WEIGHT_DIFF, expected WEIGHTS"),
        ("sent", "metrics", "is of kind METRICS, expected WEIGHTS or WEIGHT_DIFF"),
        ("gone", "difference", "cannot be read"),
    ],
)
def test_what_is_no_round_is_one_line(
    sent: str, answer: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "round.safetensors"
    files = [str(STORED / f"{sent}.fobs"), "--update", f"site-1={STORED / f'{answer}.fobs'}"]
    with pytest.raises(SystemExit) as ended:
        main(["capture", "from-nvflare", *files, "--shape", "1,8,8", "--classes", "3", "--out", str(out)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not out.exists()


def packed(body: Any, *more: bytes) -> bytes:
    main_body: Any = msgpack.packb(body)
    return struct.pack(">BBQ", 100, 0, len(main_body)) + main_body + b"".join(more)


def typed(name: str, data: Any) -> dict[str, Any]:
    return {"__fobs_type__": name, "__fobs_data__": data, "__fobs_dc__": "evil.Decomposer"}


def exchanged(data: Any) -> bytes:
    return packed(typed("nvflare.apis.dxo.DXO", typed("tuple", ["WEIGHTS", {}, data])))


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


HEADER = (
    b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }".ljust(117)
    + b"\n"
)
OBJECTS = HEADER.replace(b"'<f4'", b"'|O' ").replace(b"99999999999", b"1          ")
HOSTILE = {
    "nothing": (b"", "expected 1 to"),
    "a pickle": (b"\x80\x04\x95" + bytes(50), "damaged|claims|ends inside|kind"),
    "a section that lies": (struct.pack(">BBQ", 100, 0, 2**60) + b"x", "claims a section of"),
    "a head that is cut": (b"d\x00", "ends inside a section"),
    "no object": (packed([1, 2]), "holds no DXO"),
    "a class of its own": (packed(typed("os.system", "rm")), "holds no DXO"),
    "a table of a class": (exchanged({"w": typed("subprocess.Popen", ["ls"])}), "w: is no array"),
    "an array that lies": (exchanged({"w": typed("numpy.ndarray", {"type": "native", "data": HEADER})}), "claims"),
    "an array of objects": (exchanged({"w": typed("numpy.ndarray", {"type": "native", "data": OBJECTS})}), "claims"),
    "a reference": (exchanged({"w": typed("numpy.ndarray", {"type": "ref", "data": "file:///x"})}), "referred to"),
    "an array of text": (exchanged({"w": typed("numpy.ndarray", {"type": "native", "data": "x"})}), "referred to"),
    "a tensor that is none": (exchanged({"w": typed("torch.Tensor", {"type": "native", "data": b"x" * 9})}), "damaged"),
    "no section": (exchanged({"w": typed("nvflare.fuel.utils.fobs.datum.DatumRef", {"data": {"datum_id": "0"}})}),
                   "a section is missing"),
    "deep": (packed(nested(200)), "nested more than 50 deep"),
    "very deep": (b"d\x00" + struct.pack(">Q", 100_000) + b"\x91" * 100_000, "damaged|nested"),
    "an extension": (packed(msgpack.ExtType(5, b"x")), "extension of kind 5"),
    "encrypted": (packed(typed("nvflare.apis.dxo.DXO", typed("tuple", ["WEIGHTS", {"PROCESSED_ALGORITHM": "HE"}, {}]))),
                  "is encrypted"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_line_and_run_nothing(kind: str, tmp_path: Path) -> None:
    content, said = HOSTILE[kind]
    path = tmp_path / "hostile.fobs"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        convert(path, {"site-1": STORED / "difference.fobs"}, **WHAT)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.more
def test_a_thousand_mutations_are_read_or_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "fuzz")
    from driver import mutated  # type: ignore[import-not-found]

    whole, path, refused = (STORED / "difference.fobs").read_bytes(), tmp_path / "mutated.fobs", []
    for seed in range(1000):
        path.write_bytes(mutated(whole, random.Random(seed)))
        try:
            convert(STORED / "sent.fobs", {"site-1": path}, **WHAT)
        except ConfigError as error:
            refused.append(str(error))
    assert len(refused) > 300
    assert not [message for message in refused if "\n" in message]


def test_without_msgpack_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ConfigError, match=r"needs msgpack, install it: pip install 'gradveil\[nvflare\]'"):
        read_exchanged(STORED / "sent.fobs")
