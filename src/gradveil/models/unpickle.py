"""A pickled checkpoint to safetensors, as a script in a process of its own; it imports nothing of gradveil.

`weights_only=True` is the wall, and there is no second try without it. Behind the wall this process has no network,
starts no other, writes one file and is limited in memory and time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

SECONDS = 60  # of processor time
SLACK = 2**28  # bytes beside four times the file: the file, its tensors, and their copy to write
WITHOUT_PROC = 2**33  # what torch itself may take where nobody can say
NEW_USER, NEW_NET = 0x10000000, 0x40000000
FORBIDDEN = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "pty.",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
    "os.kill", "shutil.", "ctypes.", "webbrowser.", "urllib.", "ftplib.", "smtplib.", "http.",
)  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WRAPPED_IN = (  # where training loops put the weights, in this order where there are several
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params", "module",
    "model_weights", "ema_state_dict", "model_ema", "ema",
)  # fmt: skip
DEEPEST = 4


def main(source: str, target: str) -> None:
    """Convert; print the SHA-256 of what was read."""
    content = Path(source).read_bytes()
    leave_network()
    import torch
    from safetensors.torch import save_file

    confine(4 * len(content) + SLACK)
    loaded, place = find_weights(torch.load(BytesIO(content), weights_only=True, map_location="cpu"))
    save_file(state_dict(loaded), target)
    print(f"{hashlib.sha256(content).hexdigest()}{place and f', found under {place}'}")


def leave_network() -> None:
    """A network namespace without any device, where the system grants one; `refuse` stands behind it."""
    spaces = NEW_NET if os.geteuid() == 0 else NEW_USER | NEW_NET
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).unshare(spaces)


def confine(more: int) -> None:
    """So many bytes beside what is there already, a minute, and no door to the outside. Nothing takes it back."""
    sys.addaudithook(refuse)
    try:
        there = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        there = WITHOUT_PROC
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    bounds = {
        resource.RLIMIT_AS: there + more,
        resource.RLIMIT_FSIZE: more,
        resource.RLIMIT_CPU: used + SECONDS,
        resource.RLIMIT_CORE: 0,
    }
    for kind, bound in bounds.items():
        highest = resource.getrlimit(kind)[1]
        bound = bound if highest == resource.RLIM_INFINITY else min(bound, highest)
        resource.setrlimit(kind, (bound, bound))


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: Python asks it before each of these, and it cannot be taken off again."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
    if writes or event.startswith(FORBIDDEN):
        raise PermissionError(f"a checkpoint has no business with {event}")


def find_weights(loaded: Any) -> tuple[Any, str]:
    """What lies under the first name that training loops use, however deep, and where that was."""
    place: list[str] = []
    for _ in range(DEEPEST):
        if not isinstance(loaded, Mapping):
            break
        inner = [key for key in WRAPPED_IN if isinstance(loaded.get(key), Mapping)]
        if not inner:
            break
        loaded = loaded[inner[0]]
        place.append(inner[0])
    return loaded, ".".join(place)


def state_dict(loaded: Any) -> dict[str, Any]:
    """Plain tensors by name, whether the checkpoint is a state dict or holds one."""
    import torch

    found, _ = find_weights(loaded)
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"it holds {type(loaded).__name__} instead of a state dict")
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{str(name)[:60]!r} is {type(tensor).__name__}, a state dict holds tensors by name")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise ValueError(f"{name!r} is sparse, quantized or empty of numbers, save plain tensors")
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}


def describe(error: BaseException) -> str:
    """One line, without torch's advice to switch `weights_only` off."""
    text = " ".join(str(error).split())
    if asked := re.search(r"GLOBAL ([\w.]+)", text):
        return f"it asks for {asked[1]}, and weights need no code"
    if "weights_only" in text:
        return "it holds more than plain tensors, or is no checkpoint at all"
    return f"{type(error).__name__}: {text[:200]}"


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        sys.exit(describe(error))
