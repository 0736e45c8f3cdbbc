"""`normalize`: constants by name or as numbers, for a model that brings none."""

from __future__ import annotations

import math

from torch import nn

from gradveil.core.check import show
from gradveil.core.errors import ConfigError, unknown
from gradveil.data.cifar import CIFAR10, CIFAR100
from gradveil.data.image_zip import MEAN, STD
from gradveil.models.normalize import normalize_input

Constants = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation, a number a channel
AUTO, NONE = "auto", "none"
CONSTANTS: dict[str, Constants] = {
    "imagenet": (MEAN, STD),
    "cifar10": (CIFAR10.mean, CIFAR10.std),
    "cifar100": (CIFAR100.mean, CIFAR100.std),
}
LARGEST = 1e6
FORM = "imagenet, cifar10, cifar100, none or numbers as in 0.5,0.5,0.5/0.25,0.25,0.25"


def parse_normalization(text: str, where: str = "normalize") -> Constants | None:
    """The constants that a text names or lists; None for `auto` and `none`.

    >>> parse_normalization("0.5/0.25")
    ((0.5,), (0.25,))
    """
    if text in (AUTO, NONE):
        return None
    if text in CONSTANTS:
        return CONSTANTS[text]
    mean, slash, std = text.partition("/")
    if not slash:
        raise unknown("normalization", text[:100], (AUTO, NONE, *CONSTANTS), where)
    found = _numbers(mean, where), _numbers(std, where)
    if len(found[0]) != len(found[1]) or min(found[1]) <= 0:
        raise ConfigError(f"expected as many deviations above 0 as means, got {show(text)}", key=where)
    return found


def _numbers(text: str, where: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"expected {FORM}, got {show(text)}", key=where) from None
    if not all(math.isfinite(one) and abs(one) <= LARGEST for one in found):
        raise ConfigError(f"expected finite numbers of at most {LARGEST:g}, got {show(text)}", key=where)
    return found


def normalize_as(model: nn.Module, text: str, channels: int, where: str = "normalize") -> nn.Module:
    """The model with these constants in front, under the names that its weights have; as it is for `auto`, `none`."""
    constants = parse_normalization(text, where)
    if constants is None:
        return model
    if len(constants[0]) != channels:
        raise ConfigError(
            f"{text} has {len(constants[0])} means, the pictures have {channels} channels, give one for each "
            "or set the option `channels` of the data",
            key=where,
        )
    return normalize_input(model, *constants)
