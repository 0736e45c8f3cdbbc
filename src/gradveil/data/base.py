"""A data set in memory, and the checks that all loaders share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer, UInt8
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Loss
from gradveil.core.target import TargetKind

MAX_VALUES = 2**30  # 4 GiB as float32; what a header may promise before anything is allocated


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Pictures in [0, 1], one-hot or multi-hot targets, and the constants that models of this data customarily use."""

    name: str
    images: Float[Tensor, "n c h w"]
    targets: Float[Tensor, "n class ..."]  # of each picture or, [n, class, h, w], of each pixel
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    loss: Loss | None = "cross-entropy"  # what its targets call for; None: numbers, for which there is no usual one

    @property
    def has_classes(self) -> bool:
        """Whether pictures have a class, or several: neither masks nor numbers."""
        return self.loss is not None and self.targets.dim() == 2

    @property
    def has_labels(self) -> bool:
        """Whether every picture has one class."""
        return self.has_classes and self.loss == "cross-entropy"

    @property
    def target_kind(self) -> TargetKind:
        """What its targets are."""
        if self.loss is None:
            return "numbers"
        return "several" if self.loss == "binary-cross-entropy" else "classes"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    def __len__(self) -> int:
        return self.images.shape[0]


def check_classes(dataset: Dataset) -> None:
    """ConfigError of masks and numbers, where accuracies are measured or policies are scored."""
    if not dataset.has_classes:
        raise ConfigError(f"{dataset.name}: its targets are masks or numbers, take pictures with classes", key="data")


def one_hot(labels: Integer[np.ndarray, " n"], classes: int) -> Float[Tensor, "n class"]:
    return F.one_hot(torch.from_numpy(labels.astype(np.int64)), classes).float()


def from_bytes(pictures: UInt8[np.ndarray, "n c h w"]) -> Float[Tensor, "n c h w"]:
    return torch.from_numpy(pictures.astype(np.float32, order="C")).div_(255)


def statistics(images: Float[Tensor, "n c h w"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel; a channel without any variation is left unscaled."""
    std, mean = torch.std_mean(images.double(), dim=(0, 2, 3), correction=0)
    return tuple(mean.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist())


def check_split(name: str, split: str, known: Sequence[str] = ("train", "test")) -> None:
    if split not in known:
        near = get_close_matches(split, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(known)}"
        raise ConfigError(f"{name}: unknown split {split!r}, {hint}")


def check_positive(name: str, **options: object) -> None:
    for option, value in options.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name}: {option} is {value!r}, it must be a whole number of 1 or more")


def check_channels(name: str, channels: int) -> None:
    if channels not in (1, 3):
        raise ConfigError(f"{name}: channels is {channels}, choose 1 (gray) or 3 (color)")


def check_amount(where: Path | str, dimensions: Iterable[int]) -> None:
    """Refuse what would not fit before it is read."""
    dimensions = tuple(dimensions)
    if prod(dimensions) > MAX_VALUES:
        size = " x ".join(map(str, dimensions))
        raise ConfigError(
            f"{where}: {size} numbers are more than the {MAX_VALUES:,} read at once, make the set smaller"
        )


def check_labels(where: Path | str, labels: Integer[np.ndarray, " n"], classes: int) -> None:
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ConfigError(
            f"{where}: labels run from {labels.min()} to {labels.max()}, expected 0 to {classes - 1}; "
            "the file is damaged or of another data set"
        )
