"""Weights of the networks inside a metric: .npz or safetensors, every tensor checked, and named if they are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_tensors
from gradveil.core.metric import Source
from gradveil.data.npz import array_names, read_arrays
from gradveil.models.header import read_header

WHERE = "docs/metrics.md says where to get them"


class Weights(NamedTuple):
    tensors: dict[str, Tensor]
    source: Source


def read_weights(path: Path, shapes: Mapping[str, tuple[int, ...]], published: str, what: str) -> Weights:
    """The tensors of these names and shapes, in float32; `published` is the hash of those that everybody uses."""
    if not path.is_file():
        raise ConfigError(f"{path}: cannot be read, no such file, give {what}; {WHERE}")
    stored = _safetensors(path) if path.suffix.lower() == ".safetensors" else _arrays(path)
    for name, shape in shapes.items():
        if name not in stored or tuple(stored[name].shape) != shape or not stored[name].isfinite().all():
            raise ConfigError(f"{path}: {name} is missing, not finite or not of {shape}, give {what}; {WHERE}")
    tensors = {name: stored[name] for name in shapes}
    found = hash_tensors(tensors)
    return Weights(tensors, Source(sha256=found, known=found == published))


def _arrays(path: Path) -> dict[str, Tensor]:
    found = read_arrays(path, array_names(path))
    numbers = {name: array for name, array in found.items() if np.issubdtype(array.dtype, np.number)}
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in numbers.items()}


def _safetensors(path: Path) -> dict[str, Tensor]:
    names = read_header(path, path)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).float() for name in names}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file ({error}), save it again") from error
