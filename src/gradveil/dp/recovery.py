"""The conditional certificate: "recovered at so many dB or more", for pictures like those that are public.

The bound of a certificate holds for any event that a guess brings about, with kappa the chance of the best guess that
knows no update (Balle et al., 2022). For closeness that chance depends on what pictures look like, so it is measured on
public ones: a guess is chosen on one half of them, and its rate bounded on the other half.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.interval import at_most
from gradveil.core.seeds import Seed
from gradveil.core.types import Images
from gradveil.dp.certificate import Certificate

GUESSES = 1000  # tried, beside the mean
GUESSES_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class RecoveryChance:
    """How often one fixed picture is within `decibels` of a public one: `hits` of `of`, and the upper bound `kappa`."""

    kappa: float
    decibels: float
    hits: int
    of: int
    public: int  # pictures, half of them to choose a guess and half to count
    tried: int  # guesses among which the best was chosen
    guess: str  # which it was
    level: float

    @property
    def event(self) -> str:
        return f"recovered at {self.decibels:g} dB or more"

    @property
    def condition(self) -> str:
        """What the number needs beside the noise."""
        return (
            f"pictures like these {self.public:,} public ones: the best of {self.tried:,} fixed guesses "
            f"({self.guess}) is as near to {self.hits:,} of {self.of:,}, at {100 * self.level:g} % confidence"
        )

    def certify(self, certificate: Certificate) -> Certificate:
        """The certificate for being recovered, with the noise of one for being identified."""
        return certificate.at(self.kappa, event=self.event, condition=self.condition)


def recovery_chance(public: Images, decibels: float, *, level: float = 0.95, seed: int = 0) -> RecoveryChance:
    """The chance to be near a picture without its update, from public pictures in [0, 1].

    Tried are the mean of one half and its pictures, 1,000 at most. A guess that was not tried may be better, so what
    follows is conditional on that too.

    public: pictures [picture, channel, height, width], none of them private
    decibels: PSNR from which a picture counts as recovered
    level: confidence of the upper bound
    seed: decides which half is which
    """
    if len(public) < 4:
        raise ConfigError(
            f"must be 4 or more pictures, half of them to choose a guess, got {len(public)}", key="public"
        )
    if not 0 < level < 1:
        raise ConfigError(f"must be above 0 and below 1, got {level}", key="level")
    order = torch.randperm(len(public), generator=Seed(seed).rng())
    choose, count = (public[half.to(public.device)].flatten(1).double() for half in order.tensor_split(2))
    guesses = torch.cat([choose.mean(0, keepdim=True), choose[:GUESSES]])
    best = int(_near(guesses, choose, decibels, themselves=True).argmax())
    hits = int(_near(guesses[best : best + 1], count, decibels)[0])
    return RecoveryChance(
        kappa=at_most(hits, len(count), level),
        decibels=decibels,
        hits=hits,
        of=len(count),
        public=len(public),
        tried=len(guesses),
        guess="the mean of the others" if best == 0 else "a public picture",
        level=level,
    )


def _near(guesses: Tensor, pictures: Tensor, decibels: float, themselves: bool = False) -> Tensor:
    """How many pictures each guess is near to. `themselves`: all guesses but the first are among the pictures.

    [guess, number], [picture, number] -> [guess]
    """
    error = 10 ** (-decibels / 10) * pictures.shape[1]
    parts = [(torch.cdist(some, pictures).square() <= error).sum(1) for some in guesses.split(GUESSES_AT_ONCE)]
    hits = torch.cat(parts)
    if themselves:
        hits[1:] -= 1
    return hits
