"""What happens at the end: which restart is kept, by what the attacker sees, and what is done to its pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from gradveil.core.types import Images
from gradveil.engine.priors.prior import TotalVariation
from gradveil.transforms import color

Finish = Callable[[Images], Images]  # pictures of all clients as the search left them, to pictures as reported


def clamp(images: Images) -> Images:
    """Into the box of pictures, [0, 1]."""
    return images.clamp(0, 1)


def keep(images: Images) -> Images:
    """As the optimizer left them."""
    return images


def equalize(images: Images) -> Images:
    """Every picture divided by its largest magnitude, and the levels of its channels spread evenly.

    For updates of signs alone, which do not tell how strong a picture is (ROG, Yue et al., 2023, section 4.3).
    """
    flat = images.flatten(0, -4)
    largest = flat.abs().amax((1, 2, 3), keepdim=True).clamp_min(torch.finfo(flat.dtype).tiny)
    level = (flat / largest).clamp(0, 1).float()
    return color.equalize(level, level.new_zeros(len(level))).to(images).view_as(images)


@dataclass(frozen=True)
class Enhance:
    """A network that was trained to undo what enlarging and noise do to pictures (ROG, 2023, appendix A)."""

    file: str

    def __call__(self, images: Images) -> Images:
        return enhancer(self.file)(images.clamp(0, 1)).clamp(0, 1)


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Finish, ...]

    def __call__(self, images: Images) -> Images:
        for part in self.parts:
            images = part(images)
        return images


def files_of(finish: Finish) -> tuple[str, ...]:
    """The networks that a finish reads."""
    if isinstance(finish, Sequence):
        return tuple(file for part in finish.parts for file in files_of(part))
    return (finish.file,) if isinstance(finish, Enhance) else ()


@lru_cache(maxsize=4)
def enhancer(file: str) -> Callable[[Images], Images]:
    from gradveil.generators.enhancer import load_enhancer

    return load_enhancer(file)


SMOOTHEST = 5e-3  # of roughness: photographs have more, and a blank must not win whatever its match
ROUGHNESS = 1.0  # exponent; see docs/decisions/0007 for the pictures it was chosen on, and those it was checked on


class Selection(Protocol):
    def __call__(self, images: Tensor, total: Tensor, match: Tensor) -> Tensor: ...


def by_objective(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
    """The lowest objective: right when all restarts minimize the same one."""
    return _lowest(total)


def by_match_and_roughness(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
    """The lowest match * roughness: comparable between restarts whose priors weigh differently.

    The match alone prefers noise that happens to fit; the objective prefers whoever was given the smallest weight.
    A product has no scale, so it serves a match of 1e-3 (untrained) and of 1e-1 (trained) alike.
    """
    roughness = TotalVariation().of(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    return _lowest(match.clamp_min(1e-12) * roughness.clamp_min(SMOOTHEST) ** ROUGHNESS)


def _lowest(score: Tensor) -> Tensor:
    return score.nan_to_num(nan=float("inf")).argmin(1)
