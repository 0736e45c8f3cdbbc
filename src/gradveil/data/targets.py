"""What pictures are to be answered with, as people store it: class numbers, tables, masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Loss
from gradveil.core.target import TargetKind, kind_of
from gradveil.data.base import check_amount, one_hot

MOST_CLASSES = 100_000
LOSSES: dict[TargetKind, Loss | None] = {
    "classes": "cross-entropy", "several": "binary-cross-entropy", "numbers": None,
}  # fmt: skip


def usual_loss(targets: Tensor) -> Loss | None:
    """The loss that such targets call for; None of numbers, for which there is no usual one."""
    return LOSSES[kind_of(targets)]


def targets_from(path: Path, labels: np.ndarray, count: int, size: tuple[int, ...]) -> Tensor:
    """Class numbers (N,), or of each pixel (N, H, W), become one-hot; tables of numbers stay as they are.

    size: height and width of the pictures
    """
    if labels.ndim == 2 and labels.shape[1] == 1 and labels.dtype.kind in "iu":
        labels = labels[:, 0]
    if labels.shape[:1] != (count,) or labels.ndim > 4 or 0 in labels.shape:
        raise ConfigError(f"{path}: labels have shape {labels.shape} for {count} images, expected one row per image")
    if labels.ndim > 2 and labels.shape[-2:] != size:
        raise ConfigError(
            f"{path}: labels have shape {labels.shape} for pictures of {size}, expected masks of that size"
        )
    if labels.ndim in (1, 3) and labels.dtype.kind in "iu":
        return _one_hot(path, labels)
    return _table(path, labels)


def _one_hot(path: Path, labels: np.ndarray) -> Tensor:
    """Whole numbers from 0 as classes, [n, class] or [n, class, h, w]."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= MOST_CLASSES:
        limits = f"whole numbers from 0 to {MOST_CLASSES - 1}"
        raise ConfigError(f"{path}: labels run from {low} to {high}, expected {limits} (class numbers)")
    check_amount(f"{path}: labels", (*labels.shape, high + 1))  # one-hot, a high label is a wide table
    return one_hot(labels.reshape(-1), high + 1).unflatten(0, labels.shape).movedim(-1, 1)


def _table(path: Path, labels: np.ndarray) -> Tensor:
    """[n, class] or [n, class, h, w]; of numbers without that axis it is put there."""
    if labels.dtype.kind not in "biuf":
        raise ConfigError(f"{path}: labels are {labels.dtype}, expected class numbers or a table of numbers")
    if labels.ndim == 1 and (labels.dtype.kind != "f" or not np.mod(labels, 1).any()):
        raise ConfigError(
            f"{path}: labels are {labels.dtype}, save class numbers as whole numbers, or a column (N, 1) if they are "
            "quantities"
        )
    if labels.dtype.kind != "f" and not np.isin(labels, (0, 1)).all():
        raise ConfigError(
            f"{path}: labels are a table, so every entry must be 0 or 1; save class numbers, 0/1, or floats"
        )
    table = torch.from_numpy(labels.astype(np.float32))
    if not bool(table.isfinite().all()):
        raise ConfigError(f"{path}: labels have numbers that are NaN or infinite, mend or remove those rows")
    return table if labels.ndim in (2, 4) else table.unsqueeze(1)
