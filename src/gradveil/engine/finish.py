"""What is done to the pictures at the very end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch

from gradveil.core.types import Images
from gradveil.transforms import tone

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
    return tone.equalize(level, level.new_zeros(len(level))).to(images).view_as(images)


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
