"""Clipping of a client's whole update (McMahan et al., 2018, algorithm 1), to be followed by `gaussian` in a stack.

Differs: the paper's server adds the noise to the mean of many clients; here each client adds its own, so that it need
not trust the server. Alone it is no defense: clipping scales, and every picture is still in the direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.types import Update
from gradveil.defenses._per_example import clip_length

PAPER = Paper("Learning Differentially Private Recurrent Language Models", "McMahan et al.", 2018, "arXiv:1710.06963")


@dataclass(frozen=True, kw_only=True)
class Clip(Defense):
    """Scales the whole update down to length `clip` where it is longer."""

    clip: float = 1.0

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise ConfigError(f"clip: clip = {self.clip} is not a length, take a number > 0")

    def update(self, update: Update, rng: Generator) -> Update:
        return clip_length(update, self.clip)

    def surrogate(self, seen: Update) -> Clip:
        """Itself: it draws nothing, and clipping can be differentiated."""
        return self

    @property
    def longest(self) -> float | None:
        return self.clip if math.isfinite(self.clip) else None
