"""Trained weights, from safetensors alone: a pickle runs whatever its author wished."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gradveil.errors import ConfigError

PICKLES = {".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin"}
LISTED = 5
CONVERT = "convert it where you trust it: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the file's tensors into the model: every name, every shape, every number finite, or nothing changes."""
    _check_kind(path)
    expected = model.state_dict()
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            _check_names(path, expected, {name: tuple(file.get_slice(name).get_shape()) for name in names})
            tensors = {name: file.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file ({error}), save it again") from error
    for name, tensor in tensors.items():
        _check_numbers(path, name, tensor, expected[name])
    model.load_state_dict(tensors, strict=True)


def _check_kind(path: Path) -> None:
    if path.suffix.lower() in PICKLES:
        raise ConfigError(f"{path}: pickles are not read because reading one runs code, {CONVERT}")
    if path.suffix.lower() != ".safetensors":
        raise ConfigError(f"{path}: weights must be a .safetensors file, {CONVERT}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the path of a .safetensors file")


def _check_names(path: Path, expected: dict[str, Tensor], found: dict[str, tuple[int, ...]]) -> None:
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    misshaped = [
        f"{name} {found[name]} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name] != tuple(tensor.shape)
    ]
    told = [("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped)]
    faults = [f"{len(names)} {kind}: {_first(names)}" for kind, names in told if names]
    if faults:
        raise ConfigError(f"{path}: not the weights of this model, {'; '.join(faults)}")


def _first(names: list[str]) -> str:
    rest = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _check_numbers(path: Path, name: str, tensor: Tensor, expected: Tensor) -> None:
    if tensor.is_floating_point() != expected.is_floating_point():
        raise ConfigError(f"{path}: {name} is {tensor.dtype}, the model has {expected.dtype}, save it as that type")
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        raise ConfigError(f"{path}: {name} has {bad} numbers that are NaN or infinite, train or export the model again")
