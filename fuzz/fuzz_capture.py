"""Captures from somebody hostile: every one is refused in one line that names file and field, soon, and nothing is
written."""

from __future__ import annotations

import json
import random
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from driver import main, must, mutated

from gradveil.capture import Capture, load, save
from gradveil.capture.format import DOCUMENT, HASH
from gradveil.capture.preflight import check_capture, model_of
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import GradveilError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.models import MODELS

FOLDER = tempfile.TemporaryDirectory(prefix="gradveil-fuzz-")
SLOWEST = 5.0  # seconds
WRONG: dict[str, tuple[Any, ...]] = {
    "version": (0, 3, "1", None, True, 10**30),
    "round": (-1, 1.5, "x", None, 2**63, True, []),
    "training": (None, [], {"steps": 0}, {"steps": 10**12}, {"rate": -1}, {"rate": 0}, {"momentum": "a"}, {"x": 1},
                 {"batchnorm": "off"}, {"loss": "mse"}, {"batch_size": -3}, {"weight_decay": -1},
                 {"optimizer": "adma"}, {"optimizer": 3},
                 {"optimizer": "adam", "momentum": 0.9}, {"nesterov": 1}, {"nesterov": True}, {"beta1": 1},
                 {"beta2": -0.1}, {"smoothing": 2}, {"epsilon": -1}, {"epochs": -1}, {"epochs": 10**12},
                 {"epochs": 1.5}, {"order": True}, {"schedule": "linear"}, {"decay_every": 0}, {"decay_factor": 2},
                 {"warmup": -1}, {"clip_gradients": -1}, {"clip_gradients": "x"}, {"label_smoothing": 1.1},
                 {"class_weights": 1}, {"class_weights": [1, 2]}, {"class_weights": [-1] * 10},
                 {"class_weights": ["x"] * 10}, {"class_weights": [1] * 10**5}, {"dropout": "maybe"},
                 {"update_precision": "fp8"}),
    "examples": ({}, [], None, {"client-0": -1}, {"client-0": 10**9}, {"client-0": 1.5}, {"../x": 1}, {"b": 1},
                 {"": 1}),
    "shape": (None, [], [3, 8], [3, 8, 8, 8], [0, 8, 8], [3, -8, 8], [10**6, 10**6, 10**6], ["3", 8, 8], [4, 8, 8]),
    "classes": (0, -1, 10**9, 2.0, "10", None, 7),
    "normalization": ([], [[0.5], [0.5]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [-1, 1, 1]], "x", 3,
                      [[1e40] * 3, [1] * 3]),
    "aggregate": (0, -1, 10**9, "2", 1.0),
    "metrics": ([], {"client-0": []}, {"client-0": {"loss": "x"}}, {"a/b": {}}, {"client-0": {"loss": 10**400}}),
    "model": (3, None, "evil.py:build", "lenets", "x\ny", "x" * 2000, "resnet18"),
    "producer": (3, "\x1b[2J", "x" * 2000),
    "declared": ([], "eval", {"batchnorm": "off"}, {"batchnorm": 3}, {"steps": "3"}, {"batchnorm": None}),
    "unknown": (1, {}),
}  # fmt: skip
NAMES = ("../../etc/passwd", "weights/../x", "updates/client-0", "updates//fc.bias", "/", "", "weights/", "labels/a/b",
         "weights/\x1b[2J", "updates/client-0/conv1.weight\u202e", "statistics/client-9/fc.bias", "other/fc.bias",
         "updates/client-0/" + "a" * 400, "labels/client-0", "weights/con1.weight")  # fmt: skip


def sound() -> Capture:
    """A small one that nothing is wrong with."""
    model = MODELS["lenet"](classes=10, shape=(3, 8, 8), seed=0, mean=(0.5,) * 3, std=(0.25,) * 3).eval()
    rng = Seed(1).rng()
    client, training = in_client_mode(model, LocalTraining()), LocalTraining()
    batches = [Batch(torch.rand(1, 3, 8, 8, generator=rng), torch.eye(10)[k : k + 1]) for k in range(2)]
    updates = [local_update(client, parameters_of(client), batch, training, Defense(), rng) for batch in batches]
    return Capture(
        weights=model.state_dict(),
        updates={f"client-{k}": update for k, update in enumerate(updates)},
        round=3, training=training, examples={"client-0": 1, "client-1": 1}, shape=(3, 8, 8), classes=10,
        normalization=((0.5,) * 3, (0.25,) * 3), model="lenet",
    )  # fmt: skip


CONTENT = save(Path(FOLDER.name) / "sound.safetensors", sound()).read_bytes()


def parts() -> tuple[dict[str, Any], dict[str, Any], bytearray]:
    """Header, document and data of the sound capture, free to be spoiled. The hash is left out: it would tell."""
    length = struct.unpack("<Q", CONTENT[:8])[0]
    header = json.loads(CONTENT[8 : 8 + length])
    del header["__metadata__"][HASH]
    return header, json.loads(header["__metadata__"][DOCUMENT]), bytearray(CONTENT[8 + length :])


def packed(header: dict[str, Any] | str, document: dict[str, Any] | str | None, data: bytes | bytearray) -> bytes:
    if isinstance(header, dict):
        if document is not None:
            text = document if isinstance(document, str) else json.dumps(document)
            header["__metadata__"][DOCUMENT] = text
        header = json.dumps(header)
    return struct.pack("<Q", len(header.encode())) + header.encode() + bytes(data)


def wrong_document(rng: random.Random) -> bytes:
    header, document, data = parts()
    key = rng.choice(list(WRONG))
    document[key] = rng.choice(WRONG[key])
    return packed(header, document, data)


def missing_key(rng: random.Random) -> bytes:
    header, document, data = parts()
    del document[rng.choice(("version", "round", "training", "examples", "shape", "classes"))]
    return packed(header, document, data)


def bad_json(rng: random.Random) -> bytes:
    header, document, data = parts()
    text = json.dumps(document)
    spoiled = (
        text[:-3], "[" * 100_000, '{"a":' * 50_000, "NaN", "null", "", text.replace('"round": 3', '"round": NaN'),
        text[:-1] + ', "round": 4}', text.replace('"round": 3', '"round": ' + "9" * 6000), "x" * 2_000_000,
    )  # fmt: skip
    return packed(header, rng.choice(spoiled), data)


def bad_header(rng: random.Random) -> bytes:
    header, _, data = parts()
    text = json.dumps(header)
    first = text.index('"weights/')
    spoiled = (
        struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 10**8) + text.encode(),
        struct.pack("<Q", len(text)) + b"{}", struct.pack("<Q", 0), b"", b"\x00" * 7,
        b"PK\x03\x04" + bytes(100), b"\x80\x04\x95" + bytes(100),
        packed("[" * 200_000, None, data), packed('{"a":' * 100_000, None, data), packed("[]", None, data),
        packed("{}", None, b""), packed(text[:first] + '"__metadata__": {}, ' + text[first:], None, data),
        packed(text.replace('"F32"', '"F999"', 1), None, data), packed(text.replace('"F32"', '"U8"'), None, data),
    )  # fmt: skip
    return rng.choice(spoiled)


def bad_tensor(rng: random.Random) -> bytes:
    """Shapes and places that cannot be."""
    header, document, data = parts()
    name = rng.choice([key for key in header if key != "__metadata__"])
    one = header[name]
    change = rng.choice((
        {"shape": [-1, *one["shape"]]}, {"shape": [*one["shape"], 2]}, {"shape": [2**62, 2**62]}, {"shape": "x"},
        {"shape": [*one["shape"][::-1], 1, 1, 1]} if rng.random() < 0.1 else {"shape": [2**31, 2**31, 0, 5]},
        {"data_offsets": [0, 10**15]}, {"data_offsets": [-4, 4]}, {"data_offsets": [8, 4]}, {"data_offsets": [0]},
        {"data_offsets": [one["data_offsets"][0] + 4, one["data_offsets"][1] + 4]}, {"dtype": "F16"}, {"dtype": None},
        {"shape": [1] * 1000 + one["shape"]}, {"extra": 1},
    ))  # fmt: skip
    header[name] = {**one, **change}
    return packed(header, document, data)


def bad_name(rng: random.Random) -> bytes:
    """Path-like, foreign, renamed, doubled."""
    header, document, data = parts()
    old = rng.choice([key for key in header if key.startswith(("updates/", "weights/"))])
    new = rng.choice((*NAMES, old.replace("conv", "konv").replace("fc", "head").replace("normalize", "norm")))
    if rng.random() < 0.2:
        text = json.dumps(header)
        other = rng.choice([key for key in header if key.startswith("updates/") and key != old])
        return packed(text.replace(f'"{old}"', f'"{other}"'), None, data)  # the same key twice
    header[new] = header.pop(old)
    return packed(header, document, data)


def bad_numbers(rng: random.Random) -> bytes:
    """One that is not finite."""
    header, document, data = parts()
    name = rng.choice([key for key in header if key.startswith(("updates/", "weights/"))])
    begin, end = header[name]["data_offsets"]
    at = begin + 4 * rng.randrange((end - begin) // 4)
    data[at : at + 4] = struct.pack("<f", rng.choice((float("nan"), float("inf"), float("-inf"))))
    return packed(header, document, data)


def truncated(rng: random.Random) -> bytes:
    end = rng.randrange(len(CONTENT))
    return CONTENT[:end] if rng.random() < 0.7 else CONTENT + rng.randbytes(rng.randrange(1, 100))


def changed(rng: random.Random) -> bytes:
    """A byte of the data, while the hash stays."""
    content = bytearray(CONTENT)
    content[rng.randrange(len(CONTENT) // 2, len(CONTENT))] ^= 1 << rng.randrange(7)
    return bytes(content)


def not_an_update(rng: random.Random) -> bytes:
    """In form nothing is wrong with it: weights, a flipped sign, nothing at all, the same for everybody."""
    header, document, data = parts()
    kind = rng.choice(("weights", "after", "flipped", "zero", "same"))
    for name in [key for key in header if key.startswith("updates/")]:
        own, parameter = header[name]["data_offsets"], name.split("/", 2)[2]
        values = torch.frombuffer(data[slice(*own)], dtype=torch.float32).clone()
        sent = torch.frombuffer(data[slice(*header[f"weights/{parameter}"]["data_offsets"])], dtype=torch.float32)
        first = torch.frombuffer(
            data[slice(*header[f"updates/client-0/{parameter}"]["data_offsets"])], dtype=torch.float32
        )
        made = {"weights": sent, "after": sent - 1e-3 * values, "flipped": -values, "zero": 0 * values, "same": first}
        data[slice(*own)] = made[kind].clone().numpy().tobytes()
    return packed(header, document, data)


KINDS: tuple[Callable[[random.Random], bytes], ...] = (
    wrong_document, wrong_document, missing_key, bad_json, bad_header, bad_tensor, bad_tensor, bad_name, bad_numbers,
    truncated, changed, not_an_update,
)  # fmt: skip


def one(rng: random.Random) -> None:
    """One hostile capture through everything that an audit does with it before it attacks."""
    if rng.random() < 0.1:
        damaged(rng)
        return
    kind = rng.choice(KINDS)
    refused(kind(rng), kind.__name__)


def refused(content: bytes, what: str) -> str:
    """The line that it is refused with."""
    path = Path(FOLDER.name) / "hostile.safetensors"
    path.write_bytes(content)
    before, start = sorted(Path(FOLDER.name).iterdir()), time.monotonic()
    try:
        examined(path)
    except GradveilError as error:
        message = str(error)
    else:
        raise AssertionError(f"{what}: not refused")
    must(time.monotonic() - start < SLOWEST, f"{what}: took {time.monotonic() - start:.1f} s")
    must(message.startswith(f"{path}: "), f"{what}: the file is not named: {message[:200]}")
    must("\n" not in message[:5000] or what in ("bad_name", "bad_json"), f"{what}: more than a line: {message[:200]}")
    must(sorted(Path(FOLDER.name).iterdir()) == before, f"{what}: something was written")
    return message


def examined(path: Path) -> None:
    capture = load(path)
    check_capture(capture, model_of(capture, where=path), path)


def damaged(rng: random.Random) -> None:
    """Bytes changed anywhere: refused, or still a capture of finite numbers."""
    path = Path(FOLDER.name) / "damaged.safetensors"
    path.write_bytes(mutated(CONTENT, rng))
    try:
        found = load(path)
    except GradveilError as error:
        must(str(error).startswith(f"{path}: "), f"the file is not named: {error}")
        return
    must(all(t.isfinite().all() for t in found.tensors().values() if t.is_floating_point()), "not finite")


if __name__ == "__main__":
    main(one, "fuzz_capture")
