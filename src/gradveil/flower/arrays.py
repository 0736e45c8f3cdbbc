"""Flower's records as tensors by name, read without trusting what they claim to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor, nn

from gradveil.core.errors import ConfigError, GradveilError
from gradveil.models.buffers import is_statistic

HEADER = 4096  # bytes that numpy may put before the numbers
COUNTER = "num_batches_tracked"  # of batch normalization
Trainable = nn.Module | Iterable[str] | None


class ArraysError(GradveilError):
    """Arrays that are not what was asked for."""


def tensors_of(record: ArrayRecord) -> dict[str, Tensor]:
    """Every array as a tensor of its own memory."""
    return {name: _tensor(name, array) for name, array in record.items()}


def record_of(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(t.detach().cpu().contiguous().numpy()) for name, t in tensors.items()})


def only_arrays(content: RecordDict, whose: str) -> tuple[str, ArrayRecord]:
    """The one record of arrays, with its key."""
    records = list(content.array_records.items())
    if len(records) != 1:
        raise ArraysError(f"{whose} holds {len(records)} records of arrays, expected one with the model")
    return records[0]


def tensors_like(record: ArrayRecord, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arrays, if names, shapes and kinds are those expected; nothing larger than expected is ever allocated."""
    if odd := sorted(set(record) ^ set(expected))[:3]:
        raise ArraysError(f"other arrays than were sent: {', '.join(odd)}")
    for name, array in record.items():
        _check_header(name, array, expected[name])
    return {name: _tensor(name, array).to(expected[name].dtype) for name, array in record.items()}


def parameter_names(tensors: Mapping[str, Tensor], trainable: Trainable = None) -> tuple[str, ...]:
    """The parameters that an update is about. By default all floating-point arrays but running statistics."""
    if isinstance(trainable, nn.Module):
        trainable = [name for name, p in trainable.named_parameters() if p.requires_grad]
    if trainable is not None:
        names = tuple(trainable)
        if strange := sorted(set(names) - set(tensors))[:3]:
            raise ConfigError(f"the model has no array {', '.join(strange)}, check the names", key="trainable")
        return names
    if any(name.isdigit() for name in tensors):
        raise ConfigError(
            "the arrays have numbers for names, which do not show what a running statistic is; "
            "send a state dict, or give the names of the parameters",
            key="trainable",
        )
    return tuple(n for n, t in tensors.items() if t.is_floating_point() and not is_statistic(n))


def _tensor(name: str, array: Array) -> Tensor:
    try:
        values = array.numpy()
        return torch.from_numpy(np.array(values))
    except (ValueError, TypeError, EOFError, OSError) as error:
        raise ArraysError(f"{name}: not a readable array") from error


def _check_header(name: str, array: Array, expected: Tensor) -> None:
    """What numpy would allocate, asked before it does."""
    shape, dtype = _header(name, array)
    if shape != tuple(expected.shape):
        raise ArraysError(f"{name}: shape {shape}, expected {tuple(expected.shape)}")
    # Flower averages counters to floats, and a model that loads them sends whole numbers again
    is_whole = not expected.is_floating_point() or name.endswith(COUNTER)
    if dtype.kind not in ("fiub" if is_whole else "f"):
        raise ArraysError(f"{name}: numbers of type {dtype}, expected {expected.dtype}")
    if len(array.data) > HEADER + expected.numel() * dtype.itemsize:
        raise ArraysError(f"{name}: more bytes than its shape has numbers")


def _header(name: str, array: Array) -> tuple[tuple[int, ...], np.dtype]:
    stream = BytesIO(array.data[:HEADER])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    except (ValueError, TypeError) as error:
        raise ArraysError(f"{name}: not a readable array") from error
    return shape, dtype
