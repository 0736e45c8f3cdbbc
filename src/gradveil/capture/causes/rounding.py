"""Numbers of an update that rounding decides.

Some gradients are zero in theory: of a bias in front of batch normalization, of the keys' bias in attention. What is
computed is noise. Adam and its kind divide by its size, so these weights move as far as any other, and differently on
every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from gradveil.core.client import BATCH_NORMS, gradient_of, in_client_mode, parameters_of
from gradveil.core.local_training import BatchNorm, LocalTraining
from gradveil.core.types import Batch, Update

OFF = 1e-3  # of a number and what an adaptive optimizer adds to it: what float32 may be away from float64
TINY = 1e-7  # of the largest number of its tensor: what float32 does not resolve where numbers cancel
MOST = 0.5  # of all numbers: if it were more, nothing would be left to compare
Undecided = Mapping[str, Tensor]  # by parameter, true where rounding decides


def find_undecided(model: nn.Module, batch: Batch, training: LocalTraining) -> Undecided:
    """Nothing for a model that runs in float32 alone."""
    found: dict[str, Tensor] = {}
    try:
        for one in _list_modes(model, training):
            for name, is_off in _compare(model, batch, one).items():
                found[name] = found.get(name, torch.zeros_like(is_off)) | is_off
    except RuntimeError:
        return {}
    off, total = sum(int(one.sum()) for one in found.values()), sum(one.numel() for one in found.values())
    return found if 0 < off < MOST * total else {}


def drop(update: Update, undecided: Undecided) -> Update:
    """With zeros in the place of what rounding decides."""
    return {name: u.masked_fill(undecided[name], 0) if name in undecided else u for name, u in update.items()}


def _list_modes(model: nn.Module, training: LocalTraining) -> Iterator[LocalTraining]:
    """One is declared; where the model has batch normalization, the other may be true."""
    yield training
    if any(isinstance(layer, BATCH_NORMS) for layer in model.modules()):
        for mode in get_args(BatchNorm)[:2]:
            if mode != training.batchnorm.removesuffix("-shared"):
                yield replace(training, batchnorm=mode)


def _compare(model: nn.Module, batch: Batch, training: LocalTraining) -> dict[str, Tensor]:
    client = in_client_mode(model, training)
    single = gradient_of(client, training)(parameters_of(client), batch)
    client = client.double()
    wide = Batch(batch.images.double(), batch.labels.double())
    double = gradient_of(client, training)(parameters_of(client), wide)
    return {name: _is_noise(single[name], g, training.least) for name, g in double.items()}


def _is_noise(single: Tensor, double: Tensor, least: float) -> Tensor:
    """What is zero in both, as of a silent neuron, is none."""
    size = double.abs()
    return ((single - double).abs() > OFF * (size + least)) | ((size > 0) & (size < TINY * size.max()))
