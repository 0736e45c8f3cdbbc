"""SHA-256 of bytes, tensors and models, and the version of gradveil: one changed bit changes a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor, nn


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over name, type, shape and bytes of each tensor, by name: one changed bit changes it."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        total.update(f"{name}|{plain.dtype}|{tuple(plain.shape)}|".encode())
        total.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def hash_model(model: nn.Module) -> str:
    """Of everything that a picture meets: constants that are in no state dict count too."""
    return hash_tensors({**dict(model.named_buffers()), **model.state_dict()})


def hash_models(models: Mapping[str, nn.Module]) -> str:
    """Of several; one model under several names counts once."""
    distinct = {id(model): model for model in models.values()}
    hashes = [hash_model(model) for model in distinct.values()]
    return hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode())


TELLING = 3  # differences named in one line


def own_version() -> str:
    try:
        return version("gradveil")
    except PackageNotFoundError:
        return "not installed"


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every key whose value is not the same, with both values.

    >>> differences({"seed": 1, "data": {"size": 8}}, {"seed": 1, "data": {"size": 9, "crop": True}})
    ['data.crop is absent there, True here', 'data.size is 8 there, 9 here']
    """
    found: list[str] = []
    for key in sorted({*there, *here}):
        old, new = there.get(key), here.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} is {_value(old)} there, {_value(new)} here")
    return found


def _value(value: Any) -> str:
    return "absent" if value is None else repr(value)
