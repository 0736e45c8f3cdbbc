"""What every architecture begins with: checked sizes, normalization in front, weights that a seed decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.models.normalize import Normalize

Shape = tuple[int, int, int]  # channels, height, width


@contextmanager
def weights_from(seed: int) -> Iterator[None]:
    """Layers made inside draw their weights from `seed` alone; the caller's generator is as before afterwards."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed the caller's GPUs as well
        yield


def check_size(name: str, shape: Shape, classes: int, smallest: int) -> None:
    """Refuse pictures that would be gone before the last layer."""
    channels, height, width = shape
    if min(height, width) < smallest:
        raise ConfigError(
            f"{name}: pictures of {height}x{width} pixels are too small, it needs {smallest}x{smallest} or more; "
            "enlarge them or choose another model"
        )
    if channels < 1 or classes < 1:
        raise ConfigError(f"{name}: got {channels} channels and {classes} classes, both must be 1 or more")


def normalization(
    name: str, channels: int, mean: Sequence[float] | None, std: Sequence[float] | None
) -> dict[str, nn.Module]:
    """The first layer by name; none where no constants are given."""
    if mean is None and std is None:
        return {}
    if mean is None or std is None:
        raise ConfigError(f"{name}: got only one of mean and std, give both or neither")
    if len(mean) != channels or len(std) != channels:
        raise ConfigError(f"{name}: mean has {len(mean)} and std {len(std)} numbers, give one per channel ({channels})")
    if min(std) <= 0:
        raise ConfigError(f"{name}: std is {tuple(std)}, every number must be above 0")
    return {"normalize": Normalize(mean, std)}
