"""SHA-256 of bytes, tensors and models: one changed bit changes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

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
    return hash_tensors(model.state_dict())


def hash_models(models: Mapping[str, nn.Module]) -> str:
    """Of several; one model under several names counts once."""
    distinct = {id(model): model for model in models.values()}
    hashes = [hash_model(model) for model in distinct.values()]
    return hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode())
