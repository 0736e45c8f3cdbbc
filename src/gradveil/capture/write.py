"""Writing a capture: what `load` would refuse is not written, and what is written only its owner can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from gradveil.capture.document import format_document, parse_document
from gradveil.capture.format import CAPTURE, DOCUMENT, HASH, KIND, Capture, digest, fingerprint
from gradveil.capture.layout import LARGEST, Described, check_layout
from gradveil.capture.read import TYPES
from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole

CODES = {dtype: code for code, dtype in TYPES.items()}


def save(path: str | Path, capture: Capture) -> Path:
    """The capture as a safetensors file, 0600, whole or not at all."""
    path = Path(path)
    tensors = {name: _plain(tensor, f"{path}: {name}") for name, tensor in capture.tensors().items()}
    document = format_document(replace(capture, shape=tuple(capture.shape)))
    described = {name: Described(CODES[one.dtype], tuple(one.shape)) for name, one in tensors.items()}
    check_layout(described, parse_document(document, f"{path}: {DOCUMENT}"), str(path))
    if sum(tensor.nbytes for tensor in tensors.values()) > LARGEST - 2**24:
        raise ConfigError(f"{path}: more than {LARGEST:,} bytes, save fewer clients in one capture")
    metadata = {KIND: CAPTURE, DOCUMENT: document, HASH: hash_of(document, tensors)}
    write_whole(path, to_bytes(tensors, metadata=metadata))
    return path


def content_hash(capture: Capture) -> str:
    """The SHA-256 that `save` would write into the file. One tensor after another: many clients are much memory."""
    return fingerprint(
        format_document(capture), {name: _digest(_plain(t, name)) for name, t in capture.tensors().items()}
    )


def hash_of(document: str, tensors: dict[str, Tensor]) -> str:
    return fingerprint(document, {name: _digest(tensor) for name, tensor in tensors.items()})


def _digest(tensor: Tensor) -> str:
    content = tensor.contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b""
    return digest(CODES[tensor.dtype], tuple(tensor.shape), content)


def _plain(tensor: Tensor, where: str) -> Tensor:
    """A copy of its own: tied weights share memory, which the format cannot say."""
    tensor = tensor.detach().cpu().contiguous().clone()
    if tensor.dtype not in CODES:
        raise ConfigError(f"{where}: is of type {tensor.dtype}, convert it to float32")
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise ConfigError(f"{where}: has numbers that are not finite, leave this client out")
    return tensor
