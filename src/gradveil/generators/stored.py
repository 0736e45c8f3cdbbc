"""A trained network as one safetensors file: what it is, its weights, and the record of what it has seen.

The metadata hold `gradveil.kind`, `gradveil.architecture` (the arguments that build it, as JSON) and everything that
is known of its training under `gradveil.*`. Nothing in a file is believed before it is checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.generators.provenance import RECORDS
from gradveil.models.header import read_header

PREFIX = "gradveil."
TRAIN = "make one by gradveil train-generator"
LARGEST = 2**16  # of any number in an architecture

Network = TypeVar("Network", bound=nn.Module)


def store_network(
    path: str | Path,
    kind: str,
    network: nn.Module,
    architecture: Mapping[str, int],
    metadata: Mapping[str, object],
    seen: Mapping[str, Tensor],
) -> Path:
    """Write the file whole: weights, architecture, what is known of the training, and what was seen in it."""
    entries = {"kind": kind, "architecture": json.dumps(dict(architecture)), **metadata}
    weights = {name: x.detach().cpu().contiguous() for name, x in network.state_dict().items()}
    metadata = {PREFIX + name: str(value) for name, value in entries.items()}
    write_whole(Path(path), save({**weights, **seen}, metadata=metadata))
    return Path(path)


def metadata_of(path: str | Path, make: str = TRAIN) -> dict[str, str]:
    """The metadata of a file, without the prefix. `make` says how to get one."""
    file = Path(path)
    if file.suffix != ".safetensors" or not file.is_file():
        raise ConfigError(f"{file}: no such .safetensors file, {make}")
    read_header(file, file)
    try:
        with safe_open(file, framework="pt") as opened:
            found = opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{file}: not a readable safetensors file ({error}), save it again") from error
    return {name.removeprefix(PREFIX): value for name, value in found.items() if name.startswith(PREFIX)}


def load_network(path: str | Path, kind: str, build: Callable[..., Network], make: str = "") -> Network:
    """The frozen network of a file of this kind, on the CPU. It knows its file. `make` says how to get one."""
    file, metadata = Path(path), metadata_of(path, make or TRAIN)
    if metadata.get("kind") != kind:
        raise ConfigError(
            f"{file}: holds {metadata.get('kind', 'weights of unknown kind')}, not {kind}, {make or f'{TRAIN} {kind}'}"
        )
    with torch.device("meta"):  # no memory before names and shapes have been compared
        network = _build(file, build, _architecture(file, metadata))
    network.load_state_dict(_weights(file, network.state_dict()), strict=True, assign=True)
    network.file = str(file)  # type: ignore[assignment]
    return network.requires_grad_(False).eval()


def _build(file: Path, build: Callable[..., Network], architecture: Mapping[str, int]) -> Network:
    try:
        return build(**architecture)
    except TypeError as error:
        raise ConfigError(f"{file}: its architecture has other keys than it should, {TRAIN}") from error


def _architecture(file: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    try:
        found = json.loads(metadata.get("architecture", ""))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: its architecture is not JSON, {TRAIN}") from error
    fine = isinstance(found, dict) and all(type(value) is int and 0 < value <= LARGEST for value in found.values())
    if not fine:
        raise ConfigError(f"{file}: its architecture is no table of whole numbers up to {LARGEST}, {TRAIN}")
    return found


def _weights(file: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    header = {name: shape for name, shape in read_header(file, file).items() if name not in RECORDS}
    shapes = {name: tuple(x.shape) for name, x in expected.items()}
    wrong = sorted(name for name in {*header, *shapes} if header.get(name) != shapes.get(name))
    if wrong:
        raise ConfigError(f"{file}: {len(wrong)} tensors do not fit, the first is {wrong[0][:200]}; {TRAIN}")
    with safe_open(file, framework="pt") as opened:
        tensors = {name: _widen(opened.get_tensor(name), expected[name].dtype) for name in shapes}
    for name, tensor in tensors.items():
        if tensor.dtype != expected[name].dtype or not bool(tensor.isfinite().all()):
            raise ConfigError(f"{file}: {name}: has numbers that are not finite or of another type; {TRAIN}")
    return tensors


def _widen(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A file may hold half precision to be half as large; what is computed with is not."""
    return tensor.to(dtype) if (tensor.dtype, dtype) == (torch.float16, torch.float32) else tensor
